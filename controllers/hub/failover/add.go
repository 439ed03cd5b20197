// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/inbox"
)

// Defaults of Options. They are also the defaults of the manager's flags.
const (
	// DefaultPauseAt is the default of Options.PauseAt.
	DefaultPauseAt = 0.5
	// DefaultPauseWindow is the default of Options.PauseWindow.
	DefaultPauseWindow = 5 * time.Minute
	// DefaultDeletionGrace is the default of Options.DeletionGrace.
	DefaultDeletionGrace = 15 * time.Minute
)

const (
	defaultParallel = 8
	// concurrency is how many workers are reconciled at a time.
	concurrency = 4
)

// Contact is the state of the connection to a worker. Its times are from this process's clock.
type Contact struct {
	// Answers is true while the worker is connected.
	Answers bool
	// UnreachableSince is when this process first saw a request of this outage fail. Zero: not known to be unreachable.
	UnreachableSince time.Time
	// SilentSince is since when no connection to the worker's address was possible. Zero: something answers there.
	SilentSince time.Time
	// Untried is true while that is unknown, because nobody has tried a connection since contact was lost.
	Untried bool
}

// Connections are the connections to the workers.
type Connections interface {
	// Contact returns the state of the connection to a worker. It is zero if there is no connection.
	Contact(worker v1alpha1.ClusterName) Contact
	// Subscribe calls notify after each change of what Contact returns.
	Subscribe(notify func(worker v1alpha1.ClusterName)) (cancel func())
}

// Agents knows when the fenced copies on a worker must have stopped.
type Agents interface {
	// StoppedAt returns that time. It is not known if the agent was not alive when the worker was last seen.
	StoppedAt(worker v1alpha1.ClusterName, clusterID types.UID) (at time.Time, known bool)
	// Subscribe calls notify when StoppedAt may have changed for a worker.
	Subscribe(notify func(worker v1alpha1.ClusterName)) (cancel func())
}

// Options are the options of the controller. All are required, except where the comment of an option says otherwise.
type Options struct {
	// Hub reads from the hub's caches, TrainJobs unstructured. They need the indexes of package records. A write fails
	// with remote.ErrNotLeading if this process may not lead any more (remote.OnlyLeaderWrites).
	Hub client.Client
	// HubReader reads from the hub's API server.
	HubReader client.Reader
	// Connections are the connections to the workers.
	Connections Connections
	// Agents knows when the agents have stopped copies.
	Agents Agents
	// Accelerators knows the resources that are accelerators, for what attempts cost. The zero Table knows those of many vendors.
	Accelerators accelerators.Table
	// Recorder records Events on hub TrainJobs and WorkerClusters.
	Recorder events.EventRecorder
	// Clock is the clock of this process.
	Clock clock.Clock
	// PauseAt is a share of the workers. If a greater share is lost within PauseWindow, the manager moves no jobs of these
	// workers. 1 or more: it never pauses. 0: DefaultPauseAt and DefaultPauseWindow.
	PauseAt     float64
	PauseWindow time.Duration
	// DeletionGrace is how long the deletion of a job waits for a lost worker. 0: DefaultDeletionGrace.
	DeletionGrace time.Duration
	// Parallel is how many jobs of one worker are written at a time. 0: 8. 1: one by one, without goroutines.
	Parallel int
}

func (o Options) complete() Options {
	if o.PauseAt == 0 {
		o.PauseAt = DefaultPauseAt
	}
	if o.PauseWindow == 0 {
		o.PauseWindow = DefaultPauseWindow
	}
	if o.DeletionGrace == 0 {
		o.DeletionGrace = DefaultDeletionGrace
	}
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	return o
}

// Add adds the controller to the manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("failover").
		For(&v1alpha1.WorkerCluster{}, builder.WithPredicates(workerChanged())).
		Watches(&v1alpha1.WorkerCluster{}, handler.EnqueueRequestsFromMapFunc(r.workersAway), builder.WithPredicates(readinessChanged())).
		Watches(&v1alpha1.Dispatch{}, r.dispatchHandler()).
		Watches(trainjobs.New(), handler.EnqueueRequestsFromMapFunc(r.workerOfJob), builder.WithPredicates(jobGoes())).
		WatchesRawSource(r.inbox.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add failover controller: %w", err)
	}
	cancelConnections := r.Connections.Subscribe(r.enqueue)
	cancelAgents := r.Agents.Subscribe(func(worker v1alpha1.ClusterName) {
		if !r.Connections.Contact(worker).Answers {
			r.enqueue(worker)
		}
	})
	return inbox.AtEnd(mgr, cancelConnections, cancelAgents)
}

func requestFor(worker v1alpha1.ClusterName) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: string(worker)}}
}

func (r *Reconciler) enqueue(worker v1alpha1.ClusterName) {
	r.inbox.Add(requestFor(worker).NamespacedName)
}

// workerChanged lets a change through that matters to the state of the worker.
func workerChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.WorkerCluster), e.ObjectNew.(*v1alpha1.WorkerCluster)
		return before.Generation != after.Generation || before.Status.ClusterID != after.Status.ClusterID ||
			before.Annotations[v1alpha1.AnnotationForget] != after.Annotations[v1alpha1.AnnotationForget] || differs(before, after)
	}}
}

// readinessChanged lets a change through that matters to the state of other workers.
func readinessChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.WorkerCluster), e.ObjectNew.(*v1alpha1.WorkerCluster)
		return differs(before, after)
	}}
}

func differs(before, after *v1alpha1.WorkerCluster) bool {
	return before.Status.ReadyReason() != after.Status.ReadyReason() || !awaySince(before).Equal(awaySince(after))
}

func (r *Reconciler) workersAway(ctx context.Context, _ client.Object) []reconcile.Request {
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list WorkerClusters from the cache")
		return nil
	}
	var requests []reconcile.Request
	for i := range workers.Items {
		if name := v1alpha1.ClusterName(workers.Items[i].Name); !r.Connections.Contact(name).Answers {
			requests = append(requests, requestFor(name))
		}
	}
	return requests
}

// dispatchHandler enqueues the worker of a Dispatch that is away, or is not the cluster on which the job was placed.
func (r *Reconciler) dispatchHandler() handler.EventHandler {
	add := func(ctx context.Context, object client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if d := object.(*v1alpha1.Dispatch); r.concerns(ctx, d) {
			queue.Add(requestFor(d.Spec.Cluster))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				add(ctx, e.ObjectNew, queue)
			}
		},
	}
}

// concerns is true if this controller may have to do something about a Dispatch.
func (r *Reconciler) concerns(ctx context.Context, d *v1alpha1.Dispatch) bool {
	if d.Spec.Cluster == "" || record.StateOf(d) == record.Finished {
		return false
	}
	if !r.Connections.Contact(d.Spec.Cluster).Answers {
		return true
	}
	var worker v1alpha1.WorkerCluster
	err := r.Hub.Get(ctx, client.ObjectKey{Name: string(d.Spec.Cluster)}, &worker, client.UnsafeDisableDeepCopy)
	return err != nil || d.Spec.ClusterID != "" && d.Spec.ClusterID != worker.Status.ClusterID
}

// jobGoes lets TrainJobs through that are being deleted or were deleted.
func jobGoes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
		},
	}
}

func (r *Reconciler) workerOfJob(ctx context.Context, object client.Object) []reconcile.Request {
	job, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var d v1alpha1.Dispatch
	if err := r.Hub.Get(ctx, client.ObjectKeyFromObject(job), &d, client.UnsafeDisableDeepCopy); err != nil || !r.concerns(ctx, &d) {
		return nil
	}
	return []reconcile.Request{requestFor(d.Spec.Cluster)}
}
