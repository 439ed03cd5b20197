// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
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
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	store, err := w.watch(ctx, watched{
		what: fmt.Sprintf("WorkerCluster %q", name), object: &v1alpha1.WorkerCluster{}, selector: byName,
		list: func() client.ObjectList { return &v1alpha1.WorkerClusterList{} },
	})
	return func() *v1alpha1.WorkerCluster {
		for _, object := range store.List() {
			return object.(*v1alpha1.WorkerCluster)
		}
		return nil
	}, err
}

// Dispatches watches the Dispatches of all namespaces until the context ends, without their large fields: explanation,
// refusals and PodSets. The returned function returns their latest states.
func (w *Watcher) Dispatches(ctx context.Context) (func() []*v1alpha1.Dispatch, error) {
	store, err := w.watch(ctx, watched{
		what: "Dispatches", object: &v1alpha1.Dispatch{}, strip: stripDispatch,
		list: func() client.ObjectList { return &v1alpha1.DispatchList{} },
	})
	return func() []*v1alpha1.Dispatch {
		objects := store.List()
		dispatches := make([]*v1alpha1.Dispatch, len(objects))
		for i := range objects {
			dispatches[i] = objects[i].(*v1alpha1.Dispatch)
		}
		return dispatches
	}, err
}

// stripDispatch saves memory: a hub may have a hundred thousand waiting jobs.
func stripDispatch(object any) (any, error) {
	if d, ok := object.(*v1alpha1.Dispatch); ok {
		d.ManagedFields, d.Status.Explanation, d.Status.Refusals, d.Spec.PodSets = nil, nil, nil, nil
	}
	return object, nil
}

type watched struct {
	what     string
	object   client.Object
	list     func() client.ObjectList
	selector fields.Selector
	strip    cache.TransformFunc
}

// watch returns when the store has all current objects.
func (w *Watcher) watch(ctx context.Context, of watched) (cache.Store, error) {
	reader := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := of.list()
			err := w.hub.List(ctx, list, &client.ListOptions{
				FieldSelector: of.selector, Limit: options.Limit, Continue: options.Continue, Raw: &options,
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return w.hub.Watch(ctx, of.list(), &client.ListOptions{FieldSelector: of.selector, Raw: &options})
		},
	}
	informer := cache.NewSharedIndexInformer(reader, of.object, 0, cache.Indexers{})
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		// After all other errors the reflector continues by itself.
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			w.fail(w.hub.explain("watch "+of.what, err))
		}
	})
	if err == nil && of.strip != nil {
		err = informer.SetTransform(of.strip)
	}
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.tell() },
			UpdateFunc: func(any, any) { w.tell() },
			DeleteFunc: func(any) { w.tell() },
		})
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", of.what, err)
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, context.Cause(ctx)
	}
	return informer.GetStore(), nil
}

func (w *Watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // It has a value already.
	}
}
