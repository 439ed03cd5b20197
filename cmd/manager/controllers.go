// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/credentials"
	"github.com/trainyard/trainyard/controllers/hub/drift"
	"github.com/trainyard/trainyard/controllers/hub/failover"
	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/controllers/hub/moves"
	"github.com/trainyard/trainyard/controllers/hub/nomination"
	"github.com/trainyard/trainyard/controllers/hub/pins"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
	hublease "github.com/trainyard/trainyard/executionlease/hub"
	"github.com/trainyard/trainyard/internal/hubcache"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/remote"
)

type wiring struct {
	mgr     ctrl.Manager
	caches  *hubcache.Hub
	options options
	hubID   types.UID
	log     logr.Logger
	hub     *remote.HubAPI
	fleet   *remote.Fleet
	leases  *hublease.Answerer
	// members and quarantine refer to each other.
	members    *perworker.Set[*remote.Cluster]
	quarantine *garbagecollection.Quarantine
	// budgets are what each worker may make the mirrors write.
	budgets  mirror.Budgets
	policies placement.Policies
	trials   *mirror.Trials
	// runtimes watches the hub's runtimes, and has what is known of those of workers.
	runtimes *drift.Hub
	placer   *placement.Reconciler
	// dependents bring what jobs need to the workers, with --dependencies.
	dependents dependents
	// pins delete the pinned runtimes of workers.
	pins byWorker[pins.Reconciler]
	// nominator is nil without --kueue-dispatcher.
	nominator *nomination.Reconciler
	// logs is nil without an archive of logs.
	logs *logarchive.Archive
	// references are what the pods of a copy name, nil without --lookup.
	references referencesFunc
}

// addControllers makes the parts of the manager, connects them and adds them to mgr.
func addControllers(
	ctx context.Context, mgr ctrl.Manager, caches *hubcache.Hub, o options, hubID types.UID, log logr.Logger,
) error {
	// Otherwise only the leader would read them, when the controllers start. A new leader would have to wait.
	if err := hubcache.Fill(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if err := records.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("index Dispatches and Tombstones: %w", err)
	}
	hub, err := remote.NewHubAPI(mgr.GetConfig(), mgr.GetHTTPClient(), log)
	if err != nil {
		return err
	}
	hub.Read(ctx) // Before there are workers to compare with it.
	fleet, err := remote.NewFleet(ctx, remote.Options{
		Hub: hub, HubID: string(hubID), Scheme: mgr.GetScheme(), RequestTimeout: o.workerTimeout,
		ProbeInterval: o.workerProbeInterval, QPS: o.workerQPS, Burst: o.workerBurst, Leading: o.Leads, Logger: log,
		Workloads: o.kueueDispatcher, Rights: o.rights(),
	})
	if err != nil {
		return fmt.Errorf("set up connections: %w", err)
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("get the host's name: %w", err)
	}
	w := &wiring{mgr: mgr, caches: caches, options: o, hubID: hubID, log: log, hub: hub, fleet: fleet, policies: placement.Policies{Hub: mgr.GetClient()}}
	w.leases = hublease.NewAnswerer(hublease.Options{
		Hub: mgr.GetClient(), HubReader: mgr.GetAPIReader(), HubID: string(hubID), Manager: fmt.Sprintf("%s/%d", name, os.Getpid()),
		Margin: o.fenceMargin, Leading: o.Leads, Clock: clock.RealClock{},
	})
	w.quarantine = garbagecollection.NewQuarantine(garbagecollection.QuarantineOptions{
		Hub: mgr.GetClient(), Recorder: mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
		Enqueue: func(worker v1alpha1.ClusterName, key types.NamespacedName) {
			w.members.Enqueue(mirrorName, worker, key)
		},
	})
	w.trials = mirror.NewTrials(func(worker v1alpha1.ClusterName, key types.NamespacedName) {
		w.members.Enqueue(mirrorName, worker, key)
	}, clock.RealClock{})
	w.runtimes = &drift.Hub{
		Cache: mgr.GetCache(), States: &drift.States{HubID: string(hubID)}, Enqueue: func(worker v1alpha1.ClusterName, key types.NamespacedName) {
			w.members.Enqueue(drift.Name, worker, key)
		},
	}
	if w.logs, err = o.logArchive.newLogArchive(); err != nil {
		return err
	}
	more, err := w.logControllers()
	if err != nil {
		return err
	}
	if o.lookup {
		if w.references, err = newReferences(ctx, mgr.GetClient()); err != nil {
			return err
		}
	}
	w.members = perworker.NewSet(mgr.GetCache(), log, slices.Concat(w.dependencyControllers(), w.perWorkerControllers(), more)...)
	return errors.Join(
		mgr.Add(manager.RunnableFunc(hub.Run)), mgr.Add(w.leases), mgr.Add(w.members), mgr.Add(w.runtimes), w.quarantine.Add(mgr),
		w.addWorkerClusters(), w.addClusterProfiles(), w.addFailover(), w.addPlacement(ctx),
		w.addExpiry(name), w.addDependencies(ctx), w.addPins(ctx), w.addLogArchive(), w.addWebhooks(ctx), w.addGateway(ctx), w.addTraces(ctx),
	)
}

// addWorkerClusters adds the controller that keeps the connections, and its watch of kubeconfig files.
func (w *wiring) addWorkerClusters() error {
	var workers *workercluster.Reconciler
	files := kubeconfigs.NewFileWatcher(w.log, func(path string) { workers.EnqueuePath(path) })
	loader := w.loader()
	renewer := credentials.NewReconciler(credentials.Options{
		Hub: w.mgr.GetClient(), Loader: loader, Clock: clock.RealClock{}, Timeout: w.options.workerTimeout,
	})
	workers = workercluster.NewReconciler(workercluster.Options{
		Hub: w.mgr.GetClient(), HubID: w.hubID, Fleet: w.fleet, Members: w.members, Files: files, Agents: w.leases.Agents(), Clock: clock.RealClock{},
		Release: w.hub.Release, Credentials: loader, Accelerators: w.options.table, Runtimes: w.runtimes.States,
	})
	return errors.Join(w.mgr.Add(files), workers.Add(w.mgr), renewer.Add(w.mgr))
}

// loader reads the kubeconfigs of workers.
func (w *wiring) loader() *kubeconfigs.Loader {
	return &kubeconfigs.Loader{Reader: w.mgr.GetClient(), Namespace: w.options.namespace, Clock: clock.RealClock{}}
}

// addPlacement adds the controllers that place and move jobs.
func (w *wiring) addPlacement(ctx context.Context) error {
	options := placement.Options{
		Hub: w.mgr.GetClient(), HubReader: w.mgr.GetAPIReader(), ManagedBy: w.options.managedBy,
		Protected: w.options.protected, Connections: w.fleet, UnknownCopies: w.quarantine, Shown: w.quarantine.Swept,
		Trials: w.trials, Runtimes: w.runtimes.States, Accelerators: w.options.table, Recorder: w.mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
	}
	watch := w.newKueueWatch()
	if watch != nil {
		options.Kueue, options.AdmissionCheck = watch, w.options.kueueAdmissionCheck
	}
	placer, err := placement.NewReconciler(ctx, options)
	if err != nil {
		return err
	}
	w.placer = placer
	if watch != nil {
		watch.Subscribe(placer.Reconsider)
		if err := w.mgr.Add(watch); err != nil {
			return fmt.Errorf("add watch of Kueue: %w", err)
		}
	}
	w.quarantine.Subscribe(func(key types.NamespacedName) { placer.Wake(key) })
	mover := moves.NewReconciler(moves.Options{
		Hub: w.mgr.GetClient(), Room: placer, Policy: w.policies.For, Clock: clock.RealClock{},
	})
	return errors.Join(placer.Add(w.mgr), mover.Add(w.mgr), w.addNomination())
}

// newKueueWatch returns the watch of the hub's Kueue, nil if nobody needs it: MultiKueue dispatches only jobs with its
// own value of spec.managedBy.
func (w *wiring) newKueueWatch() *kueue.Watch {
	options := kueue.Options{Config: w.mgr.GetConfig(), HTTPClient: w.mgr.GetHTTPClient(), Logger: w.log}
	switch {
	case w.options.kueueAdmissionCheck:
		options.Checks = kueue.CheckController
	case w.options.managedBy != v1alpha1.ManagedByMultiKueue:
		return nil
	}
	return kueue.New(options)
}

// addNomination adds the dispatcher of the hub's MultiKueue, if the options ask for it.
func (w *wiring) addNomination() error {
	if !w.options.kueueDispatcher {
		return nil
	}
	w.nominator = nomination.NewReconciler(nomination.Options{
		Hub: w.mgr.GetClient(), Connections: w.fleet, Room: w.placer, PodSet: demand.OfPods, Policy: w.policies.For,
		Recorder: w.mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{},
	})
	return w.nominator.Add(w.mgr)
}

// addFailover adds the controller for the jobs of lost workers.
func (w *wiring) addFailover() error {
	return failover.NewReconciler(failover.Options{
		Hub: w.mgr.GetClient(), HubReader: w.mgr.GetAPIReader(), Connections: contacts{w.fleet}, Agents: w.leases.Agents(),
		Recorder: w.mgr.GetEventRecorder(recorderName), Clock: clock.RealClock{}, Accelerators: w.options.table,
		PauseAt: w.options.failoverPauseAt, PauseWindow: w.options.failoverPauseWindow, DeletionGrace: w.options.deletionGrace,
	}).Add(w.mgr)
}

// contacts adapts the connections to failover.Connections.
type contacts struct{ fleet *remote.Fleet }

// Contact implements failover.Connections.
func (c contacts) Contact(worker v1alpha1.ClusterName) failover.Contact {
	cluster, ok := c.fleet.Get(worker)
	if !ok {
		return failover.Contact{}
	}
	status := cluster.Status()
	contact := failover.Contact{Answers: status.State == remote.Connected}
	if status.State == remote.Unreachable {
		contact.UnreachableSince, contact.SilentSince, contact.Untried = status.Since, status.SilentSince, status.Untried
	}
	return contact
}

// Subscribe implements failover.Connections.
func (c contacts) Subscribe(notify func(v1alpha1.ClusterName)) (cancel func()) {
	return c.fleet.Subscribe(func(worker v1alpha1.ClusterName, _ remote.Status) { notify(worker) })
}
