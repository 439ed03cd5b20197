// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/drift"
	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/controllers/hub/nomination"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/remote"
)

const mirrorName = "mirror"

// spareMirrors is how many of a worker's mirror goroutines stay free when all allowed creations hang.
const spareMirrors = 2

// perWorkerControllers returns the kinds of controllers that every connected worker has its own instance of.
func (w *wiring) perWorkerControllers() []perworker.Kind[*remote.Cluster] {
	kinds := []perworker.Kind[*remote.Cluster]{w.pinControllers(), {
		Name:        mirrorName,
		Concurrency: w.options.workerConcurrency + spareMirrors,
		Sources:     events(mirror.JobSetEvents),
		New:         w.newMirror,
		Sweep: func(ctx context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster) (bool, error) {
			return garbagecollection.Sweep(ctx, w.collection(worker, connection))
		},
	}, {
		Name:        "executionlease",
		Concurrency: 1,
		Sources:     events(w.leases.Events),
		Apart:       true,
		New: func(_ context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, _ func() bool) (reconcile.Reconciler, error) {
			return w.leases.For(worker, connection), nil
		},
	}}
	kinds = append(kinds, w.runtimeControllers())
	if w.options.kueueDispatcher {
		kinds = append(kinds, perworker.Kind[*remote.Cluster]{
			Name:        nomination.Name,
			Concurrency: 1,
			Sources:     events(nomination.CloneEvents),
			Apart:       true,
			New: func(context.Context, v1alpha1.ClusterName, *remote.Cluster, func() bool) (reconcile.Reconciler, error) {
				return w.nominator.Clones(), nil
			},
		})
	}
	return kinds
}

// events are a source that is the same for all workers.
func events(of func(cache.Cache) source.Source) func(v1alpha1.ClusterName, cache.Cache) []source.Source {
	return func(_ v1alpha1.ClusterName, from cache.Cache) []source.Source { return []source.Source{of(from)} }
}

// runtimeControllers are the controllers that compare the runtimes of workers with the hub's.
func (w *wiring) runtimeControllers() perworker.Kind[*remote.Cluster] {
	shared := drift.NewShared(w.runtimes.States, w.mgr.GetAPIReader())
	return perworker.Kind[*remote.Cluster]{
		Name:        drift.Name,
		Concurrency: 1,
		Sources:     w.runtimes.States.Events,
		Apart:       true,
		New: func(_ context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, _ func() bool) (reconcile.Reconciler, error) {
			return drift.NewReconciler(drift.Options{
				Cluster: worker, Hub: w.mgr.GetClient(), Worker: connection, Cache: connection.Cache(),
				Shared: shared, Clock: clock.RealClock{},
			}), nil
		},
		Sweep: func(_ context.Context, worker v1alpha1.ClusterName, _ *remote.Cluster) (bool, error) {
			w.runtimes.Return(worker)
			return false, nil
		},
	}
}

func (w *wiring) newMirror(
	ctx context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, swept func() bool,
) (reconcile.Reconciler, error) {
	inherited, err := mirror.Inherited(ctx, w.mgr.GetCache(), worker)
	if err != nil {
		return nil, err
	}
	id := connection.Status().ClusterID
	collection := w.collection(worker, connection)
	collection.Swept = swept
	var brings mirror.Dependencies // A nil Reconciler is no nil interface.
	if reconciler := w.dependents.get(worker); reconciler != nil {
		brings = reconciler
	}
	return mirror.NewReconciler(mirror.Options{
		Cluster: worker, ClusterID: id, HubID: string(w.hubID), Hub: w.mgr.GetClient(), HubReader: w.mgr.GetAPIReader(), Worker: connection,
		Collector:     garbagecollection.NewCollector(collection),
		Lease:         func() (string, bool) { return w.leases.Agents().Valid(worker, id) },
		Dependencies:  brings,
		Pins:          w.pins.get(worker),
		JobSetMissing: func() string { return connection.Status().JobSetMissing },
		Policy:        w.policies.For, Recorder: w.mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
		Protected: w.options.protected, NamespaceLabel: w.options.carriesLabel, Unsent: w.options.unsent,
		Inherited: inherited, Creations: w.options.workerConcurrency, Budget: w.budgets.Of(worker), Trials: w.trials,
		Accelerators: w.options.table, LookUp: w.lookUp(connection),
		Runtimes: func() *dispatch.Runtimes { return w.runtimes.States.Of(worker) },
	}), nil
}

func (w *wiring) collection(worker v1alpha1.ClusterName, connection *remote.Cluster) garbagecollection.Options {
	return garbagecollection.Options{
		Cluster: worker, ClusterID: connection.Status().ClusterID, HubID: string(w.hubID), ManagedBy: w.options.managedBy,
		Hub: w.mgr.GetClient(), HubReader: w.mgr.GetAPIReader(), Quarantine: w.quarantine,
		Worker: connection, WorkerCache: connection.Cache(), Others: w.other,
		Busy: func() bool { return w.placer.Busy() || w.members.Busy(mirrorName, worker) },
		Demand: func(ctx context.Context, job *unstructured.Unstructured) (v1alpha1.DispatchSpec, error) {
			return w.placer.Demand(ctx, job, worker)
		},
		Retention: w.policies.Retention, Recorder: w.mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
	}
}

// other returns the connection to a worker if the worker has this cluster ID, or if id is empty.
func (w *wiring) other(name v1alpha1.ClusterName, id types.UID) (copies.Connection, bool) {
	connection, ok := w.fleet.Get(name)
	if !ok || id != "" && connection.Status().ClusterID != id {
		return nil, false
	}
	return connection, true
}
