// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// concurrency is how many decisions may be on their way to the API server. They are made one at a time.
const concurrency = 8

// Add adds the controller to the manager. fleet tells when inventories change.
func (r *Reconciler) Add(mgr ctrl.Manager, fleet *remote.Fleet) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("placement").
		For(trainjobs.New(), builder.WithPredicates(r.jobPredicate())).
		Watches(&v1alpha1.Dispatch{}, r.dispatchHandler()).
		Watches(&v1alpha1.WorkerCluster{}, r.workerHandler(), builder.WithPredicates(workerPredicate())).
		Watches(&v1alpha1.DispatchPolicy{}, r.wakeHandler(r.wakeAll), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&trainer.ClusterTrainingRuntime{}, r.runtimeHandler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&trainer.TrainingRuntime{}, r.runtimeHandler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&schedulingv1.PriorityClass{}, r.wakeHandler(r.wakeAll), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesMetadata(&corev1.Namespace{}, r.wakeHandler(r.wakeAll), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesRawSource(r.inbox.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add placement controller: %w", err)
	}
	if err := r.addValidity(mgr); err != nil {
		return err
	}
	return mgr.Add(&waker{reconciler: r, fleet: fleet})
}

// jobPredicate lets through the TrainJobs of this manager. Of the changes of their status, which are our own doing, only the end matters.
func (r *Reconciler) jobPredicate() predicate.Predicate {
	ours := func(object client.Object) bool {
		job, ok := object.(*unstructured.Unstructured)
		return ok && trainjobs.ManagedBy(job) == r.ManagedBy
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return ours(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return ours(e.ObjectNew) && (e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
				e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
				e.ObjectNew.GetDeletionTimestamp() != nil ||
				hasEnded(e.ObjectNew) && !hasEnded(e.ObjectOld) ||
				!equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
				!equality.Semantic.DeepEqual(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()))
		},
		DeleteFunc:  func(e event.DeleteEvent) bool { return ours(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func hasEnded(object client.Object) bool {
	job, ok := object.(*unstructured.Unstructured)
	return ok && trainjobs.Terminal(job) != nil
}

// workerPredicate lets through what decides whether a worker takes jobs, and what one may have refused. What its nodes have free comes from
// its inventory.
func workerPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.WorkerCluster), e.ObjectNew.(*v1alpha1.WorkerCluster)
		return !equality.Semantic.DeepEqual(before.Labels, after.Labels) || stateOf(before) != stateOf(after) ||
			(sweepRefused(before) == nil) != (sweepRefused(after) == nil) ||
			meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.WorkerClusterReady) !=
				meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.WorkerClusterReady)
	}}
}

// workerHandler has a pass made, and the jobs looked at that the worker has refused: it may say something else now.
func (r *Reconciler) workerHandler() handler.EventHandler {
	see := func(worker client.Object, queue requestQueue) {
		for _, key := range r.line.excluding(v1alpha1.ClusterName(worker.GetName())) {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
		r.signal()
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) { see(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) { see(e.ObjectNew, queue) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requestQueue) { see(e.Object, queue) },
	}
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// dispatchHandler keeps the ledger. A job is looked at again when its Dispatch goes, waits, or has an attempt that ended.
func (r *Reconciler) dispatchHandler() handler.EventHandler {
	var counted census
	see := func(d *v1alpha1.Dispatch, queue requestQueue) {
		counted.see(d)
		if r.line.observe(d) {
			r.signal()
		}
		evict := d.Spec.Eviction == nil && r.line.eviction(d.Spec.TrainJob.UID) != nil
		if evict || d.Spec.Cluster == "" || d.DeletionTimestamp != nil || d.AttemptEnded() {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		}
	}
	lose := func(d *v1alpha1.Dispatch, queue requestQueue) {
		counted.lose(d)
		r.rememberAttempt(d)
		if r.line.forget(d.Spec.TrainJob.UID, d.Spec.Attempt) {
			r.signal()
		}
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) {
			see(e.Object.(*v1alpha1.Dispatch), queue)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) {
			before, after := e.ObjectOld.(*v1alpha1.Dispatch), e.ObjectNew.(*v1alpha1.Dispatch)
			if before.UID != after.UID { // A watch that was away has missed the deletion.
				lose(before, queue)
			}
			see(after, queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requestQueue) {
			lose(e.Object.(*v1alpha1.Dispatch), queue)
		},
	}
}

// wakeHandler calls wake on every event.
func (r *Reconciler) wakeHandler(wake func()) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(context.Context, event.CreateEvent, requestQueue) { wake() },
		UpdateFunc: func(context.Context, event.UpdateEvent, requestQueue) { wake() },
		DeleteFunc: func(context.Context, event.DeleteEvent, requestQueue) { wake() },
	}
}

// runtimeHandler has the waiting jobs looked at that name a runtime. Runtimes are users' objects: the jobs of others do
// not care.
func (r *Reconciler) runtimeHandler() handler.EventHandler {
	wake := func(runtime client.Object, queue requestQueue) {
		for _, key := range r.line.using(client.ObjectKeyFromObject(runtime)) {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) { wake(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) { wake(e.ObjectNew, queue) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requestQueue) { wake(e.Object, queue) },
	}
}

// signal has a pass made soon. It never blocks.
func (r *Reconciler) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // One is under way.
	}
}

// wakeAll has all waiting jobs looked at, because what they need or what holds for them may be something else now.
func (r *Reconciler) wakeAll() {
	for _, key := range r.line.all() {
		r.inbox.Add(key)
	}
}

// waker turns changes of workers' inventories, and time, into passes.
type waker struct {
	reconciler *Reconciler
	fleet      *remote.Fleet

	mu sync.Mutex
	// subscribed are the connections whose inventory is watched, under mu.
	subscribed map[v1alpha1.ClusterName]*remote.Cluster
	cancels    map[v1alpha1.ClusterName]func()
}

// Start implements manager.Runnable.
func (w *waker) Start(ctx context.Context) error {
	r := w.reconciler
	if err := r.expectWaiting(ctx); err != nil {
		return err
	}
	cancel := w.fleet.Subscribe(func(name v1alpha1.ClusterName, _ remote.Status) {
		w.follow(name)
		r.signal()
	})
	defer cancel()
	for {
		var due <-chan time.Time
		var timer clock.Timer
		if wait, ok := r.line.next(); ok {
			timer = r.Clock.NewTimer(wait)
			due = timer.C()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		if err := r.pass(ctx, types.NamespacedName{}); err != nil {
			return err
		}
	}
}

// expectWaiting has all jobs that are not placed looked at, before anything is decided: after a restart the first in order comes first,
// not the first that happens to be read.
func (r *Reconciler) expectWaiting(ctx context.Context) error {
	waiting, err := r.unplaced(ctx)
	if err != nil {
		return err
	}
	r.line.expect(waiting)
	for _, key := range waiting {
		r.inbox.Add(key)
	}
	r.signal() // For those that have come meanwhile, should nobody have waited before.
	return nil
}

// unplaced are the jobs that a worker has to be found for.
func (r *Reconciler) unplaced(ctx context.Context, options ...client.ListOption) ([]types.NamespacedName, error) {
	jobs := &unstructured.UnstructuredList{}
	jobs.SetGroupVersionKind(trainjobs.GroupVersionKind.GroupVersion().WithKind(trainjobs.GroupVersionKind.Kind + "List"))
	if err := r.Hub.List(ctx, jobs, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list TrainJobs: %w", err)
	}
	var keys []types.NamespacedName
	for i := range jobs.Items {
		key := client.ObjectKeyFromObject(&jobs.Items[i])
		f, err := r.observe(ctx, key)
		if err != nil {
			return nil, err
		}
		if classify(r.ManagedBy, f) == unplaced {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// follow subscribes to the inventory of a worker's current connection.
func (w *waker) follow(name v1alpha1.ClusterName) {
	cluster, _ := w.fleet.Get(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subscribed[name] == cluster {
		return
	}
	if cancel := w.cancels[name]; cancel != nil {
		cancel()
	}
	if w.subscribed == nil {
		w.subscribed, w.cancels = map[v1alpha1.ClusterName]*remote.Cluster{}, map[v1alpha1.ClusterName]func(){}
	}
	delete(w.subscribed, name)
	delete(w.cancels, name)
	if cluster != nil {
		w.subscribed[name] = cluster
		w.cancels[name] = cluster.Inventory().Subscribe(w.reconciler.signal)
	}
}
