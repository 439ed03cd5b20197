// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"context"
	"fmt"
	"maps"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Name names the controllers of this package.
const Name = "runtimes"

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Events gives the keys of the runtimes in a worker's cache, and an empty key when all have come. It notes a change of a
// runtime before anybody can decide by what was known before.
func (s *States) Events(name v1alpha1.ClusterName, of cache.Cache) []source.Source {
	see := func(object client.Object, queue requestQueue) {
		if s.isOwn(object) && object.GetLabels()[v1alpha1.LabelPinned] != "" {
			return // The hub has no runtime of this name, and no job asks for it by its name.
		}
		key := client.ObjectKeyFromObject(object)
		s.seen(name, key, versionOf(object), !s.isOwn(object))
		queue.Add(reconcile.Request{NamespacedName: key})
	}
	events := handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) { see(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) {
			if versionOf(e.ObjectOld) != versionOf(e.ObjectNew) || !maps.Equal(marksOf(e.ObjectOld), marksOf(e.ObjectNew)) {
				see(e.ObjectNew, queue)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requestQueue) {
			key := client.ObjectKeyFromObject(e.Object)
			s.gone(name, key) // Nobody is placed by it any more. The key may wait behind questions.
			queue.Add(reconcile.Request{NamespacedName: key})
		},
	}
	var all []source.Source
	for _, kind := range []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(kind))
		all = append(all, source.Kind[client.Object](of, object, events))
	}
	// The controller takes the first key when all sources have given what there was at the start.
	return append(all, source.Func(func(_ context.Context, queue requestQueue) error {
		queue.Add(reconcile.Request{})
		return nil
	}))
}

// marksOf are what the manager says on a runtime that it has made.
func marksOf(object client.Object) map[string]string {
	return map[string]string{
		v1alpha1.LabelPropagatedBy: object.GetLabels()[v1alpha1.LabelPropagatedBy],
		v1alpha1.AnnotationSource:  object.GetAnnotations()[v1alpha1.AnnotationSource],
	}
}

// Hub looks at workers again when a runtime of the hub changes.
type Hub struct {
	// Cache is the hub's cache.
	Cache  cache.Cache
	States *States
	// Enqueue has the controller of a worker look at a runtime. It must not block.
	Enqueue func(worker v1alpha1.ClusterName, key types.NamespacedName)
}

// Start watches the hub's runtimes until ctx ends.
func (h *Hub) Start(ctx context.Context) error {
	for _, object := range []client.Object{&trainer.ClusterTrainingRuntime{}, &trainer.TrainingRuntime{}} {
		informer, err := h.Cache.GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watch runtimes of the hub: %w", err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: h.changed,
			UpdateFunc: func(before, after any) {
				if versionOf(before.(client.Object)) != versionOf(after.(client.Object)) {
					h.changed(after)
				}
			},
			DeleteFunc: h.changed,
		})
		if err != nil {
			return fmt.Errorf("watch runtimes of the hub: %w", err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // The cache ends too.
	}
	<-ctx.Done()
	return nil
}

// changed looks at the workers that have a runtime.
func (h *Hub) changed(object any) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	runtime, ok := object.(client.Object)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(runtime)
	for _, name := range h.States.having(key) {
		h.Enqueue(name, key)
	}
}

// Return looks again at the runtimes of a worker that was away.
func (h *Hub) Return(name v1alpha1.ClusterName) {
	for _, key := range h.States.comparedOn(name) {
		h.Enqueue(name, key)
	}
}
