// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover_test

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wrapped is a client whose writes a test can observe and disturb.
type wrapped struct {
	client.Client
	// around is called instead of each write. It gets the object, and a function that does the write.
	around func(object client.Object, write func() error) error
	// stale is returned instead of the TrainJob of its name, as from a cache that lags.
	stale *unstructured.Unstructured
	// hidden is the key of a TrainJob that the cache does not show.
	hidden client.ObjectKey
}

func (w *wrapped) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if job, ok := object.(*unstructured.Unstructured); ok && w.stale != nil && key == client.ObjectKeyFromObject(w.stale) {
		w.stale.DeepCopyInto(job)
		return nil
	}
	if _, ok := object.(*unstructured.Unstructured); ok && key == w.hidden {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "trainjobs"}, key.Name)
	}
	return w.Client.Get(ctx, key, object, options...)
}

func (w *wrapped) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return w.around(object, func() error { return w.Client.Create(ctx, object, options...) })
}

func (w *wrapped) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return w.around(object, func() error { return w.Client.Delete(ctx, object, options...) })
}

func (w *wrapped) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return w.around(object, func() error { return w.Client.Patch(ctx, object, patch, options...) })
}

func (w *wrapped) Status() client.SubResourceWriter {
	return wrappedStatus{SubResourceWriter: w.Client.Status(), around: w.around}
}

type wrappedStatus struct {
	client.SubResourceWriter
	around func(object client.Object, write func() error) error
}

func (w wrappedStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return w.around(object, func() error { return w.SubResourceWriter.Patch(ctx, object, patch, options...) })
}

// meter counts writes, and how many are under way at a time.
type meter struct {
	mu                  sync.Mutex
	writes, under, most int
}

func (m *meter) around(_ client.Object, write func() error) error {
	m.mu.Lock()
	m.writes++
	m.under++
	m.most = max(m.most, m.under)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.under--
		m.mu.Unlock()
	}()
	return write()
}
