// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Watcher keeps the current state of objects of the hub, and tells of changes. Its watches outlive connections.
type Watcher struct {
	hub     *Hub
	changed chan struct{} // Has a value while there is a change that nobody has read.
	fail    context.CancelCauseFunc
}

// NewWatcher returns an idle Watcher. The returned context ends with ctx, or with a cause if the user may not watch.
func (h *Hub) NewWatcher(ctx context.Context) (context.Context, *Watcher) {
	ctx, fail := context.WithCancelCause(ctx)
	return ctx, &Watcher{hub: h, changed: make(chan struct{}, 1), fail: fail}
}

// Changed has a value when a watched object has changed since the last value was read.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Worker watches one WorkerCluster until the context ends. The returned function returns its latest state, or nil.
func (w *Watcher) Worker(ctx context.Context, name string) (func() *v1alpha1.WorkerCluster, error) {
	byName := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	workers, err := w.watch(ctx, fmt.Sprintf("WorkerCluster %q", name), &v1alpha1.WorkerCluster{}, byName)
	return func() *v1alpha1.WorkerCluster {
		worker := &v1alpha1.WorkerCluster{}
		if workers.Get(ctx, types.NamespacedName{Name: name}, worker) != nil { // It is not there: a cache has no other error.
			return nil
		}
		return worker
	}, err
}

// Dispatches watches the Dispatches of all namespaces until the context ends, without their large fields: explanation,
// refusals and PodSets. The returned function returns their latest states.
func (w *Watcher) Dispatches(ctx context.Context) (func() []v1alpha1.Dispatch, error) {
	dispatches, err := w.watch(ctx, "Dispatches", &v1alpha1.Dispatch{}, cache.ByObject{Transform: stripDispatch})
	return func() []v1alpha1.Dispatch {
		list := &v1alpha1.DispatchList{}
		_ = dispatches.List(ctx, list) // A cache that has been filled has no error.
		return list.Items
	}, err
}

// stripDispatch saves memory: a hub may have a hundred thousand waiting jobs.
func stripDispatch(object any) (any, error) {
	if d, ok := object.(*v1alpha1.Dispatch); ok {
		d.ManagedFields, d.Status.Explanation, d.Status.Refusals, d.Spec.PodSets = nil, nil, nil, nil
	}
	return object, nil
}

// watch returns a cache of the objects of one kind when it has all current objects.
func (w *Watcher) watch(
	ctx context.Context, what string, object client.Object, options cache.ByObject,
) (client.Reader, error) {
	options.UnsafeDisableDeepCopy = ptr.To(true) // Nobody changes what is read.
	objects, err := cache.New(w.hub.config, cache.Options{
		Scheme: w.hub.Scheme(), Mapper: w.hub.RESTMapper(), ByObject: map[client.Object]cache.ByObject{object: options},
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			// After all other errors the cache continues by itself.
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				w.fail(w.hub.explain("watch "+what, err))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	informer, err := objects.GetInformer(ctx, object)
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.tell() },
			UpdateFunc: func(any, any) { w.tell() },
			DeleteFunc: func(any) { w.tell() },
		})
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	go func() { _ = objects.Start(ctx) }() // It has no error.
	if !objects.WaitForCacheSync(ctx) {
		return nil, context.Cause(ctx)
	}
	return objects, nil
}

func (w *Watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // It has a value already.
	}
}
