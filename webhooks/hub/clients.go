// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cachedClient reads from a cache, and sends the rest to the API server.
type cachedClient struct {
	client.Client
	reader client.Reader
}

// Get reads from the cache.
func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, object, opts...)
}

// List reads from the cache.
func (c cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

// emptyCluster has no objects. The runtime framework looks for earlier objects of the job. There are none on the hub,
// so the manager needs no right to read Secrets or ConfigMaps of users.
type emptyCluster struct{ client.Client }

// Get finds nothing.
func (emptyCluster) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List finds nothing.
func (emptyCluster) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
