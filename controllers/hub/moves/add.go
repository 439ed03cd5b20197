// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// gatherTime is how long events about jobs and room are gathered into one reconcile of a worker.
const gatherTime = 250 * time.Millisecond

// Add adds the controller to the manager. Its caches need the indexes of package records.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("moves").
		For(&v1alpha1.WorkerCluster{}, builder.WithPredicates(workerPredicate())).
		Watches(&v1alpha1.Dispatch{}, r.dispatchHandler()).
		Watches(&v1alpha1.DispatchPolicy{}, handler.EnqueueRequestsFromMapFunc(r.allWorkers),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.inbox.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // A budget covers the moves from all workers together.
		Complete(r)
	if err != nil {
		return fmt.Errorf("add moves controller: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer r.Room.Subscribe(r.roomChanged)()
		<-ctx.Done()
		return nil
	}))
}

// workerPredicate lets changes through that decide whether a worker keeps its jobs, and whether it answers.
func workerPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.WorkerCluster), e.ObjectNew.(*v1alpha1.WorkerCluster)
		return before.Generation != after.Generation || homeOf(before) != homeOf(after)
	}}
}

// interest is why events elsewhere matter for a worker.
type interest struct {
	// draining: the worker is being drained, so changed jobs, moves that end, and new room matter.
	draining bool
	// overdue: the worker does not let a job run, so new room matters.
	overdue bool
}

func (r *Reconciler) care(name v1alpha1.ClusterName, draining, overdue bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cares[name] = (interest{draining: draining, overdue: overdue}); r.cares[name] == (interest{}) {
		delete(r.cares, name)
	}
}

func (r *Reconciler) forget(name v1alpha1.ClusterName) {
	delete(r.workers, name)
	r.care(name, false, false)
}

// readTimeouts reads whether any policy has an admissionTimeout.
func (r *Reconciler) readTimeouts(ctx context.Context) error {
	var policies v1alpha1.DispatchPolicyList
	if err := r.Hub.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list DispatchPolicies: %w", err)
	}
	timeouts := false
	for i := range policies.Items {
		timeouts = timeouts || policies.Items[i].Rules().AdmissionTimeout.Duration > 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timeouts = timeouts
	return nil
}

func (r *Reconciler) hasTimeouts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.timeouts
}

// caring returns the workers for which an event elsewhere matters.
func (r *Reconciler) caring(matters func(interest) bool) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []types.NamespacedName
	for name, interest := range r.cares {
		if matters(interest) {
			keys = append(keys, types.NamespacedName{Name: string(name)})
		}
	}
	return keys
}

// roomChanged enqueues the workers whose jobs are to leave.
func (r *Reconciler) roomChanged() {
	for _, key := range r.caring(func(interest) bool { return true }) {
		r.inbox.AddAfter(key, gatherTime)
	}
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// dispatchHandler enqueues the worker of a changed Dispatch. If a move begins or ends, it enqueues all drained workers.
func (r *Reconciler) dispatchHandler() handler.EventHandler {
	see := func(before, after *v1alpha1.Dispatch, queue requestQueue) {
		was, is := record.IsMoving(before), record.IsMoving(after)
		for _, d := range []*v1alpha1.Dispatch{before, after} {
			if d != nil && d.Spec.Cluster != "" && r.concerns(d) {
				queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: string(d.Spec.Cluster)}}, gatherTime)
			}
		}
		if was == is {
			return
		}
		for _, key := range r.caring(func(i interest) bool { return i.draining }) {
			queue.AddAfter(reconcile.Request{NamespacedName: key}, gatherTime)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) {
			see(nil, e.Object.(*v1alpha1.Dispatch), queue)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) {
			see(e.ObjectOld.(*v1alpha1.Dispatch), e.ObjectNew.(*v1alpha1.Dispatch), queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requestQueue) {
			see(e.Object.(*v1alpha1.Dispatch), nil, queue)
		},
	}
}

// concerns is true if a change of the job may change a decision about its worker.
func (r *Reconciler) concerns(d *v1alpha1.Dispatch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cares[d.Spec.Cluster].draining || r.timeouts && mayBeHeld(d)
}

// allWorkers returns all workers: any job may have the changed policy.
func (r *Reconciler) allWorkers(ctx context.Context, _ client.Object) []reconcile.Request {
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		return nil // The manager has waited for the cache, so this does not fail.
	}
	requests := make([]reconcile.Request, len(workers.Items))
	for i := range workers.Items {
		requests[i].Name = workers.Items[i].Name
	}
	return requests
}
