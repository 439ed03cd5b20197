// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/pins"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/remote"
)

// pinControllers are the controllers that delete the pinned runtimes of workers. They come before the mirror, which needs the
// Reconciler.
func (w *wiring) pinControllers() perworker.Kind[*remote.Cluster] {
	return perworker.Kind[*remote.Cluster]{
		Name: pins.Name, Concurrency: 1, Apart: true, Sources: func(_ v1alpha1.ClusterName, from cache.Cache) []source.Source { return pins.Events(from) },
		New: func(_ context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, _ func() bool) (reconcile.Reconciler, error) {
			reconciler := pins.NewReconciler(pins.Options{
				Cluster: worker, ClusterID: connection.Status().ClusterID, HubID: string(w.hubID), Hub: w.mgr.GetClient(),
				HubReader: w.mgr.GetAPIReader(), Worker: connection, Clock: clock.RealClock{},
			})
			w.pins.put(worker, reconciler)
			return reconciler, nil
		},
		Sweep: func(ctx context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster) (bool, error) {
			namespaces, err := pins.Namespaces(ctx, connection.Cache())
			for namespace := range namespaces {
				w.members.Enqueue(pins.Name, worker, types.NamespacedName{Name: namespace})
			}
			return false, err
		},
	}
}

// addPins lets the controllers know when a Dispatch needs its pinned runtime no more.
func (w *wiring) addPins(ctx context.Context) error {
	dispatches, err := w.mgr.GetCache().GetInformer(ctx, &v1alpha1.Dispatch{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	pinned := func(d *v1alpha1.Dispatch) bool { return d.Spec.Runtime == v1alpha1.RuntimePin }
	_, err = dispatches.AddEventHandler(leftWorker(pinned, func(worker v1alpha1.ClusterName, namespace string) {
		w.members.Enqueue(pins.Name, worker, types.NamespacedName{Name: namespace})
	}))
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	return nil
}

// leftWorker calls tell with the namespace of a Dispatch that meets a condition, and the worker that has no work for it any
// more.
func leftWorker(meets func(*v1alpha1.Dispatch) bool, tell func(worker v1alpha1.ClusterName, namespace string)) toolscache.ResourceEventHandler {
	left := func(before any, now *v1alpha1.Dispatch) {
		if gone, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
			before = gone.Obj
		}
		d, ok := before.(*v1alpha1.Dispatch)
		if !ok || !meets(d) || d.Spec.Cluster == "" {
			return
		}
		if now == nil || now.Spec.Cluster != d.Spec.Cluster || now.IsFinished() && !d.IsFinished() {
			tell(d.Spec.Cluster, d.Namespace)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, now any) {
			if d, ok := now.(*v1alpha1.Dispatch); ok {
				left(before, d)
			}
		},
		DeleteFunc: func(before any) { left(before, nil) },
	}
}
