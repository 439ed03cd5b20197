// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/dependencies"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
)

const dependenciesName = "dependencies"

// dependents are the reconcilers of all connected workers.
type dependents struct {
	// consented has the metadata of the hub's objects that may be brought to workers. Nil: nothing is brought.
	consented cache.Cache

	byWorker[dependencies.Reconciler]
}

// byWorker has the latest R of each worker. It is safe for concurrent use.
type byWorker[R any] struct {
	mu sync.Mutex
	// of is under mu.
	of map[v1alpha1.ClusterName]*R
}

func (b *byWorker[R]) put(worker v1alpha1.ClusterName, reconciler *R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[v1alpha1.ClusterName]*R{}
	}
	b.of[worker] = reconciler
}

// get returns the R of a worker, nil if there is none.
func (b *byWorker[R]) get(worker v1alpha1.ClusterName) *R {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[worker]
}

// those returns the workers whose R meets a condition.
func (b *byWorker[R]) those(meets func(*R) bool) sets.Set[v1alpha1.ClusterName] {
	b.mu.Lock()
	all := maps.Clone(b.of)
	b.mu.Unlock()
	workers := sets.Set[v1alpha1.ClusterName]{}
	for worker, reconciler := range all {
		if meets(reconciler) {
			workers.Insert(worker)
		}
	}
	return workers
}

// addDependencies lets the reconcilers know what changes on the hub, if the options ask for them.
func (w *wiring) addDependencies(ctx context.Context) (err error) {
	if !w.options.dependencies {
		return nil
	}
	w.dependents.consented, err = dependencies.NewConsented(ctx, w.mgr.GetConfig(), w.mgr.GetHTTPClient(), w.changedOnHub)
	if err != nil {
		return err
	}
	dispatches, err := w.mgr.GetCache().GetInformer(ctx, &v1alpha1.Dispatch{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	names := func(d *v1alpha1.Dispatch) bool { return len(d.Spec.Dependencies) > 0 }
	if _, err = dispatches.AddEventHandler(leftWorker(names, w.enqueueNamespace)); err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	if _, err = dispatches.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) { w.adopted(nil, now) }, UpdateFunc: w.adopted,
	}); err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	return w.mgr.Add(w.dependents.consented)
}

// changedOnHub has the namespace of an object looked at on the workers of the jobs that name the object.
func (w *wiring) changedOnHub(namespace string, changed v1alpha1.Dependency) {
	workers, err := records.WorkersOf(context.Background(), w.mgr.GetClient(), namespace, changed)
	if err != nil {
		w.log.Error(err, "Jobs whose dependency has changed are not known")
	}
	for worker := range w.dependents.those(func(r *dependencies.Reconciler) bool { return r.Pulls(namespace, changed) }) {
		workers.Insert(worker)
	}
	for worker := range workers {
		w.enqueueNamespace(worker, namespace)
	}
}

// adopted has the namespace of a Dispatch looked at that was made from a copy which was found: what was brought for the copy
// may not be on record.
func (w *wiring) adopted(before, now any) {
	d, ok := now.(*v1alpha1.Dispatch)
	if !ok || !record.IsAdopted(d) || len(d.Spec.Dependencies) == 0 {
		return
	}
	if was, ok := before.(*v1alpha1.Dispatch); !ok || was.Spec.Attempt != d.Spec.Attempt {
		w.enqueueNamespace(d.Spec.Cluster, d.Namespace)
	}
}

func (w *wiring) enqueueNamespace(worker v1alpha1.ClusterName, namespace string) {
	w.members.Enqueue(dependenciesName, worker, types.NamespacedName{Name: namespace})
}

// dependencyControllers returns the kind of controller that keeps dependencies, if the options ask for it. It comes before
// the mirror, which needs the Reconciler.
func (w *wiring) dependencyControllers() []perworker.Kind[*remote.Cluster] {
	if !w.options.dependencies {
		return nil
	}
	return []perworker.Kind[*remote.Cluster]{{
		Name: dependenciesName, Concurrency: 1, Apart: true, Sources: events(endsOfCopies),
		New: func(_ context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, _ func() bool) (reconcile.Reconciler, error) {
			reconciler := dependencies.NewReconciler(dependencies.Options{
				Cluster: worker, ClusterID: connection.Status().ClusterID, HubID: string(w.hubID), Hub: w.mgr.GetClient(),
				HubReader: w.mgr.GetAPIReader(), Consented: w.dependents.consented, Worker: connection, Unsent: w.options.unsent,
				Enqueue: func(namespace string) { w.enqueueNamespace(worker, namespace) }, Clock: clock.RealClock{},
			})
			w.dependents.put(worker, reconciler)
			return reconciler, nil
		},
		Sweep: func(ctx context.Context, worker v1alpha1.ClusterName, _ *remote.Cluster) (bool, error) {
			return false, w.enqueueRecorded(ctx, worker)
		},
	}}
}

// enqueueRecorded has all namespaces of a worker looked at that have objects on record, or jobs that name some.
func (w *wiring) enqueueRecorded(ctx context.Context, worker v1alpha1.ClusterName) error {
	namespaces, err := w.dependents.get(worker).Recorded(ctx)
	if err != nil {
		return err
	}
	live, err := records.Live(ctx, w.mgr.GetClient(), worker)
	if err != nil {
		return err
	}
	for i := range live {
		if len(live[i].Spec.Dependencies) > 0 {
			namespaces.Insert(live[i].Namespace)
		}
	}
	for namespace := range namespaces {
		w.enqueueNamespace(worker, namespace)
	}
	return nil
}

// endsOfCopies is a source of the namespaces of copies that end or go, and that name dependencies.
func endsOfCopies(copies cache.Cache) source.Source {
	names := func(object client.Object) bool { return object.GetAnnotations()[v1alpha1.AnnotationDependencies] != "" }
	ended := func(object client.Object) bool {
		copy, ok := object.(*unstructured.Unstructured)
		return ok && trainjobs.Terminal(copy) != nil
	}
	enqueue := handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: e.ObjectNew.GetNamespace()}})
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: e.Object.GetNamespace()}})
		},
	}
	return source.Kind[client.Object](copies, trainjobs.New(), enqueue, predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return names(e.ObjectNew) && ended(e.ObjectNew) && !ended(e.ObjectOld) },
		DeleteFunc: func(e event.DeleteEvent) bool { return names(e.Object) },
	})
}
