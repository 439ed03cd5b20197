// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
)

// concurrency is how many Dispatches may be on their way to the API server.
const concurrency = 8

// Add adds the controller to the manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	w := r.watches
	err := ctrl.NewControllerManagedBy(mgr).
		Named("placement").
		For(trainjobs.New(), builder.WithPredicates(jobPredicate(r.options.ManagedBy))).
		Watches(&v1alpha1.Dispatch{}, w.dispatches()).
		Watches(&v1alpha1.WorkerCluster{}, w.workers(), builder.WithPredicates(workerPredicate())).
		Watches(&v1alpha1.DispatchPolicy{}, w.all(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&trainer.ClusterTrainingRuntime{}, w.runtimes(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&trainer.TrainingRuntime{}, w.runtimes(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&schedulingv1.PriorityClass{}, w.all(), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesMetadata(&corev1.Namespace{}, w.all(), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.Tombstone{}, w.tombstones()).
		WatchesRawSource(r.inbox.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add placement controller: %w", err)
	}
	if err := errors.Join(addValidity(mgr, r.options), addActivity(mgr, r.options)); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := r.expectUnplaced(ctx); err != nil {
			return err
		}
		inventories := inventories{decider: r.decider, connections: r.options.Connections, watched: map[v1alpha1.ClusterName]watched{}}
		defer r.options.Connections.Subscribe(inventories.follow)()
		defer r.decider.Subscribe(r.reviewQuota)()
		defer r.show(ctx)()
		if r.options.Runtimes != nil {
			defer r.options.Runtimes.Subscribe(r.runtimesChanged)()
		}
		return r.decider.Run(ctx)
	}))
}

// expectUnplaced makes the Reconciler look at all jobs that are not placed before the decider decides anything: after a
// restart the first job in order comes first, and not the first job that is read.
func (r *Reconciler) expectUnplaced(ctx context.Context, options ...client.ListOption) error {
	jobs := &unstructured.UnstructuredList{}
	jobs.SetGroupVersionKind(trainjobs.GroupVersionKind.GroupVersion().WithKind(trainjobs.GroupVersionKind.Kind + "List"))
	if err := r.options.Hub.List(ctx, jobs, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return fmt.Errorf("list TrainJobs: %w", err)
	}
	var keys []types.NamespacedName
	for i := range jobs.Items {
		key := client.ObjectKeyFromObject(&jobs.Items[i])
		seen, err := r.observer.glance(ctx, key)
		if err != nil {
			return err
		}
		if classify(r.options.ManagedBy, &seen) == unplaced {
			keys = append(keys, key)
		}
	}
	r.decider.Expect(keys)
	r.wake(keys...)
	return nil
}

// runtimesChanged wakes the jobs for which a worker makes other pods than before.
func (r *Reconciler) runtimesChanged(_ v1alpha1.ClusterName, own []types.NamespacedName) {
	for _, runtime := range own {
		jobs := r.waiting.naming(runtime)
		decider.Await(r.decider, jobs)
		r.wake(jobs...)
	}
	r.decider.Changed()
}

// wake makes the Reconciler look at jobs.
func (r *Reconciler) wake(jobs ...types.NamespacedName) {
	for _, key := range jobs {
		r.inbox.Add(key)
	}
}

// Wake makes the Reconciler look at TrainJobs again, and the decider do a pass. Those who implement UnknownCopies and
// Shown call it when their answers have changed. A key without a name stands for no job. It never blocks.
func (r *Reconciler) Wake(keys ...types.NamespacedName) {
	for _, key := range keys {
		if key.Name != "" {
			r.inbox.Add(key)
		}
	}
	r.decider.Changed()
}

// Reconsider makes the Reconciler look at a TrainJob again, or, with an empty key, at all jobs that wait. Those who
// implement Kueue call it when an answer of Of has changed, and when Known becomes true. It never blocks.
func (r *Reconciler) Reconsider(key types.NamespacedName) {
	if key.Name != "" {
		r.inbox.Add(key)
		return
	}
	r.watches.wakeAll()
	r.decider.Changed()
}

// reviewQuota looks again at the jobs that wait with quota: workers have changed. Changes are gathered.
func (r *Reconciler) reviewQuota() {
	for _, key := range r.waiting.keepingQuota() {
		r.inbox.AddAfter(key, explanationInterval)
	}
}

// Busy is true while at least as many jobs wait to be looked at as the Reconciler handles at a time. Work that can wait
// should then leave the API servers to these jobs.
func (r *Reconciler) Busy() bool { return r.inbox.Waiting() >= concurrency }

// jobPredicate lets through the TrainJobs of a manager. The only change of their status that matters is their end. A job
// that has ended when it is seen first was read late (package hubcache): if its Dispatch has not finished, that wakes it.
func jobPredicate(managedBy string) predicate.Predicate {
	ours := func(object client.Object) bool {
		job, ok := object.(*unstructured.Unstructured)
		return ok && trainjobs.ManagedBy(job) == managedBy
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			return ours(e.Object) && (e.IsInInitialList || !hasEnded(e.Object))
		},
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

// workerPredicate lets through what decides whether a worker takes jobs, and what a worker may have refused. What its
// nodes have free comes from its inventory.
func workerPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.WorkerCluster), e.ObjectNew.(*v1alpha1.WorkerCluster)
		return !equality.Semantic.DeepEqual(before.Labels, after.Labels) || digestOf(before) != digestOf(after) ||
			dispatch.MergingOf(before) != dispatch.MergingOf(after) ||
			(decider.SweepRefused(before) == nil) != (decider.SweepRefused(after) == nil) ||
			meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.WorkerClusterReady) !=
				meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.WorkerClusterReady)
	}}
}

// watches tell the decider what has changed, and wake the jobs that a change is about.
type watches struct {
	decider *decider.Decider
	waiting *waiting
	wake    func(jobs ...types.NamespacedName)

	workerQueues *workerQueues
	missing      *missing
	data         *data
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// onEvent calls see with the object of every event.
func onEvent(see func(client.Object)) handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ requestQueue) { see(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requestQueue) { see(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) { see(e.Object) },
	}
}

// workers wakes the jobs that a worker has refused: what they need may have changed with the worker.
func (w *watches) workers() handler.EventHandler {
	see := func(worker *v1alpha1.WorkerCluster) {
		w.wake(w.decider.RefusedBy(v1alpha1.ClusterName(worker.Name))...)
		queues, missing, data := w.workerQueues.see(worker), w.missing.see(worker), w.data.see(worker)
		if queues || missing || data {
			w.wakeAll()
		}
		w.decider.Changed()
	}
	events := onEvent(func(worker client.Object) { see(worker.(*v1alpha1.WorkerCluster)) })
	events.DeleteFunc = func(_ context.Context, e event.DeleteEvent, _ requestQueue) {
		see(&v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: e.Object.GetName()}}) // Nothing of it counts any more.
	}
	return events
}

// runtimes wakes the waiting jobs that name a runtime. Runtimes are users' objects: the jobs of others do not care.
func (w *watches) runtimes() handler.EventHandler {
	return onEvent(func(runtime client.Object) { w.wake(w.waiting.naming(client.ObjectKeyFromObject(runtime))...) })
}

// all wakes all waiting jobs.
func (w *watches) all() handler.EventHandler {
	return onEvent(func(client.Object) { w.wakeAll() })
}

// wakeAll wakes all waiting jobs, because what they need may have changed.
func (w *watches) wakeAll() { w.wake(w.waiting.after(w.decider.WaitingList())...) }

// dispatches tells the decider what Dispatches say. It wakes a job when its Dispatch is gone, waits, or has an attempt
// that ended.
func (w *watches) dispatches() handler.EventHandler {
	see := func(before, d *v1alpha1.Dispatch) {
		count(before, d)
		w.decider.Observe(d)
		if state := record.StateOf(d); !state.Live() && state != record.Finished {
			w.wake(client.ObjectKeyFromObject(d))
		}
	}
	lose := func(d *v1alpha1.Dispatch) {
		count(d, nil)
		w.waiting.deleted(d)
		w.decider.Forget(d.Spec.TrainJob.UID, d.Spec.Attempt)
		w.wake(client.ObjectKeyFromObject(d))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ requestQueue) { see(nil, e.Object.(*v1alpha1.Dispatch)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requestQueue) {
			before, after := e.ObjectOld.(*v1alpha1.Dispatch), e.ObjectNew.(*v1alpha1.Dispatch)
			if before.UID != after.UID { // A watch that was away has missed the deletion.
				lose(before)
				before = nil
			}
			see(before, after)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) { lose(e.Object.(*v1alpha1.Dispatch)) },
	}
}

// tombstones wakes a waiting job when a worker that may have had a copy of it has none: the job may be given up.
func (w *watches) tombstones() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) {
		spec := &e.Object.(*v1alpha1.Tombstone).Spec
		if key := (types.NamespacedName{Namespace: spec.Namespace, Name: spec.TrainJob.Name}); w.waiting.has(key) {
			w.wake(key)
		}
	}}
}

// inventories tells the decider when the inventory of a worker changes.
type inventories struct {
	decider     *decider.Decider
	connections Connections

	mu sync.Mutex
	// watched are the connections whose inventory is watched, under mu.
	watched map[v1alpha1.ClusterName]watched
}

type watched struct {
	connection *remote.Cluster
	cancel     func()
}

// follow watches the inventory of a worker's current connection.
func (i *inventories) follow(name v1alpha1.ClusterName, _ remote.Status) {
	defer i.decider.Changed()
	cluster, _ := i.connections.Get(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.watched[name]
	if before.connection == cluster {
		return
	}
	if before.cancel != nil {
		before.cancel()
	}
	if delete(i.watched, name); cluster != nil {
		i.watched[name] = watched{cluster, cluster.Inventory().Subscribe(i.decider.Changed)}
	}
}
