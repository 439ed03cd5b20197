// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// Name is the name of the controllers that bring the events of the workers' Workloads.
const Name = "nomination"

// gatherTime is how long changes of room are gathered before the waiting list is looked at.
const gatherTime = 100 * time.Millisecond

// Add adds the controller to the manager. The hub must serve Kueue's API.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: everything}}
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(kueues.KindWorkload.New()).
		Watches(kueues.KindAdmissionCheck.New(), all).
		Watches(kueues.KindMultiKueueConfig.New(), all).
		Watches(kueues.KindMultiKueueCluster.New(), all).
		WatchesRawSource(r.inbox.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // The waiting list has one order.
		Complete(r)
	if err != nil {
		return fmt.Errorf("add nomination controller: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer r.Room.Subscribe(r.roomChanged)()
		defer r.Connections.Subscribe(func(v1alpha1.ClusterName, remote.Status) { r.inbox.AddAfter(everything, gatherTime) })()
		<-ctx.Done()
		return nil
	}))
}

// roomChanged looks at the waiting list if anybody is on it.
func (r *Reconciler) roomChanged() {
	if r.waiting.any.Load() {
		r.inbox.AddAfter(waitingList, gatherTime)
	}
}

// CloneEvents is a source of the keys of the Workloads in a worker's cache. Nobody waits for it: a worker may forbid
// the hub to read Workloads.
func CloneEvents(workloads cache.Cache) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		informer, err := workloads.GetInformer(ctx, kueues.KindWorkload.New(), cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch Workloads: %w", err)
		}
		events := source.Informer{Informer: informer, Handler: &handler.EnqueueRequestForObject{}}
		return events.Start(ctx, queue)
	})
}

// Clones returns the reconciler for the events of one worker. A clone has the key of its Workload on the hub.
func (r *Reconciler) Clones() reconcile.Reconciler {
	return reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		r.inbox.Add(request.NamespacedName)
		return reconcile.Result{}, nil
	})
}
