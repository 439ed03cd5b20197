// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/stage"
)

func restClient(s *stage.Stage) (*http.Client, error) {
	return rest.HTTPClientFor(s.Hub.Cluster.Config)
}

// counter counts requests to API servers.
type counter struct{ requests atomic.Int64 }

// counting counts the requests of a client. If it is cached, its reads are none.
type counting struct {
	client.Client
	sent   *counter
	cached bool
}

func (c counting) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if !c.cached {
		c.sent.requests.Add(1)
	}
	return c.Client.Get(ctx, key, object, options...)
}

func (c counting) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	c.sent.requests.Add(1)
	return c.Client.Create(ctx, object, options...)
}

func (c counting) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	c.sent.requests.Add(1)
	return c.Client.Update(ctx, object, options...)
}

func (c counting) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	c.sent.requests.Add(1)
	return c.Client.Delete(ctx, object, options...)
}

func (c counting) Status() client.SubResourceWriter { return countingStatus{c.Client.Status(), c.sent} }

type countingStatus struct {
	client.SubResourceWriter
	sent *counter
}

func (c countingStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	c.sent.requests.Add(1)
	return c.SubResourceWriter.Patch(ctx, object, patch, options...)
}

// countingConnection counts the requests to a worker.
type countingConnection struct {
	copies.Connection
	sent *counter
}

func (c countingConnection) Client() (client.Client, error) {
	client, err := c.Connection.Client()
	return counting{client, c.sent, true}, err
}

// damaging reads Secrets with contents that no API server takes. While there are none, it reads Secrets as they are.
type damaging struct {
	client.Reader
	contents string
}

func (r *damaging) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, object, options...)
	if secret, ok := object.(*unstructured.Unstructured); ok && err == nil && secret.GetKind() == "Secret" && r.contents != "" {
		return unstructured.SetNestedField(secret.Object, map[string]any{"token": map[string]any{"not": r.contents}}, "data")
	}
	return err
}

// forbidding is a connection without the rights to write.
type forbidding struct{ copies.Connection }

func (f forbidding) Client() (client.Client, error) {
	client, err := f.Connection.Client()
	return forbidden{client}, err
}

type forbidden struct{ client.Client }

func (f forbidden) Create(context.Context, client.Object, ...client.CreateOption) error {
	return apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no rights"))
}

// unguarded is a connection to a worker without the policy.
type unguarded struct{ copies.Connection }

func (u unguarded) Client() (client.Client, error) {
	client, err := u.Connection.Client()
	return withoutPolicy{client}, err
}

type withoutPolicy struct{ client.Client }

func (w withoutPolicy) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if len(options) == 1 && options[0] == client.DryRunAll {
		return nil
	}
	return w.Client.Create(ctx, object, options...)
}
