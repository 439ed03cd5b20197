// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// Name is the name of the controller.
const Name = "garbagecollection"

// Options are the options of a garbage collector. All are required but Others, Demand and Busy.
type Options struct {
	// Cluster is the worker's name, and ClusterID the ID of the cluster that it leads to.
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
	// HubID is on each copy of this hub.
	HubID string
	// ManagedBy is the value of spec.managedBy that this manager owns.
	ManagedBy string
	// Hub reads from the hub's caches, HubReader from its API server.
	Hub       client.Client
	HubReader client.Reader
	// Worker is the connection, and WorkerCache its caches. WorkerCache sends no requests to the API server: it fails to
	// list kinds that it does not hold. If it holds pods, they have the index remote.IndexJobSet.
	Worker      copies.Connection
	WorkerCache client.Reader
	// Others returns the connections to the other workers. A worker may show a later attempt of a job that is on record
	// elsewhere. The manager believes this worker only if the worker on record says that it does not have the job. If
	// Others is nil, the manager does not believe it.
	Others Others
	// Quarantine is shared by the garbage collectors of all workers.
	Quarantine *Quarantine
	// Retention returns how long the finished copy of a job stays.
	Retention func(ctx context.Context, job *unstructured.Unstructured) (time.Duration, error)
	// Demand returns what a job needs and its priority, as placement would record them. Nil, or an error: they are not
	// known.
	Demand func(ctx context.Context, job *unstructured.Unstructured) ([]v1alpha1.PodSet, int32, error)
	// Busy is true while jobs wait for the hub or for this worker's mirror. The deletion of finished copies waits then,
	// and for burstPause after that. Nil means never busy.
	Busy func() bool
	// Recorder records Events on hub TrainJobs and WorkerClusters.
	Recorder events.EventRecorder
	// Clock is the clock of this process.
	Clock clock.Clock
}

// NewReconciler makes the garbage collector of one worker. Its keys are the keys of the worker's copies and of their
// Dispatches. A key without a namespace is the name of a Tombstone.
func NewReconciler(o Options) reconcile.Reconciler {
	here, hub, stored := o.here(), hubReader{o.Hub}, hubReader{o.HubReader}
	attempts := attempts{here: here, hub: o.Hub, stored: stored}
	suspects := o.suspects()
	decisions := decisions{here: here, managedBy: o.ManagedBy, hub: hub, stored: stored, suspects: suspects, recorder: o.Recorder}
	return &reconciler{
		here: here, connection: o.Worker, hub: hub, suspects: suspects, attempts: attempts,
		retirement: retirement{hub: hub, pods: o.WorkerCache, retention: o.Retention, busy: o.Busy, clock: o.Clock},
		leftovers:  leftovers{here: here, hub: hub, jobSets: o.WorkerCache, clock: o.Clock},
		execution:  execution{here: here, hubID: o.HubID, hub: o.Hub},
		investigator: investigator{
			here: here, hubID: o.HubID, managedBy: o.ManagedBy, hub: hub, stored: stored,
			suspects: suspects, attempts: attempts, decisions: decisions,
			belief:  belief{here: here, hubID: o.HubID, others: o.Others, decisions: decisions, clock: o.Clock},
			adopter: adopter{here: here, records: records.Writer{Hub: o.Hub, Clock: o.Clock}, demand: o.Demand, recorder: o.Recorder},
		},
	}
}

func (o *Options) here() judgement.Worker {
	return judgement.Worker{Name: o.Cluster, ClusterID: o.ClusterID}
}

func (o *Options) suspects() suspects {
	return suspects{quarantine: o.Quarantine, worker: o.Cluster, clock: o.Clock}
}

// reconciler judges copies by what the hub's caches have on record. The rest is done by the parts that it consists of.
type reconciler struct {
	here       judgement.Worker
	connection copies.Connection
	// hub reads from the hub's caches.
	hub          hubReader
	suspects     suspects
	attempts     attempts
	retirement   retirement
	leftovers    leftovers
	execution    execution
	investigator investigator
}

// Reconcile deletes one copy if a record says so, or executes one Tombstone.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker, err := connect(r.here.Name, r.connection)
	if err != nil {
		// The next connection brings all other keys again.
		return r.leftovers.disconnected(request.NamespacedName), nil //nolint:nilerr // It is no failure.
	}
	var result reconcile.Result
	if request.Namespace == "" {
		result, err = r.execution.execute(ctx, worker, request.Name)
	} else {
		result, err = r.collect(ctx, worker, request.NamespacedName)
	}
	return requeue.AfterLag(result, err)
}

// collect judges one copy, and does what its state requires.
func (r *reconciler) collect(ctx context.Context, worker workerClient, key types.NamespacedName) (reconcile.Result, error) {
	copy, err := worker.Cached(ctx, key)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case copy == nil:
		return r.missing(ctx, worker, key)
	}
	r.leftovers.forget(key)
	hub, err := r.hub.recordsOf(ctx, copy)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch judgement.Of(hub.seen(r.here, copy)).Copy {
	case judgement.Outdated:
		r.suspects.release(key)
		return reconcile.Result{}, worker.deleteCopy(ctx, copy, "outdated")
	case judgement.Retained:
		r.suspects.release(key)
		return r.retirement.retire(ctx, worker, copy, hub.dispatch)
	case judgement.Needed:
		r.suspects.release(key)
		return reconcile.Result{}, r.attempts.heed(ctx, copy, hub)
	case judgement.Unknown, judgement.Orphaned, judgement.Adoptable, judgement.Postponed:
		return r.investigator.investigate(ctx, worker, copy, hub)
	case judgement.Gone:
	}
	return reconcile.Result{}, nil
}

// missing handles a copy that the cache does not show.
func (r *reconciler) missing(ctx context.Context, worker workerClient, key types.NamespacedName) (reconcile.Result, error) {
	if held, known := r.suspects.get(key); known {
		return r.investigator.missing(ctx, worker, key, held)
	}
	return r.leftovers.clear(ctx, worker, key)
}
