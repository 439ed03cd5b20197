// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// Reconciler reconciles WorkerClusters that are away. It keeps no state but the time of its first reconcile.
type Reconciler struct {
	Options
	records records.Writer
	inbox   inbox.Inbox
	// started is the time of the first reconcile, when this replica began to lead.
	start   sync.Once
	started time.Time
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(options Options) *Reconciler {
	return &Reconciler{
		Options: options.complete(),
		records: records.Writer{Hub: options.Hub, Clock: options.Clock, Accelerators: options.Accelerators},
	}
}

// Reconcile does what is due for the jobs of one worker.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.start.Do(func() { r.started = r.Clock.Now() })
	again, err := r.reconcile(ctx, v1alpha1.ClusterName(request.Name))
	if err != nil || again.IsZero() {
		return requeue.AfterConflict(reconcile.Result{}, err)
	}
	return reconcile.Result{RequeueAfter: max(again.Sub(r.Clock.Now()), requeue.ConflictDelay)}, nil
}

// reconcile returns when to reconcile again if no event comes, zero for never.
func (r *Reconciler) reconcile(ctx context.Context, name v1alpha1.ClusterName) (time.Time, error) {
	o, err := r.observe(ctx, name)
	if err != nil {
		return time.Time{}, err
	}
	dispatches, err := records.Live(ctx, r.Hub, name)
	if err != nil {
		return time.Time{}, err
	}
	if o.worker == nil {
		if len(dispatches) == 0 {
			count(name, notLost)
			return time.Time{}, nil
		}
		if err := r.verifyGone(ctx, name); err != nil {
			return time.Time{}, err
		}
	}
	state, again := o.stateAt(r.Clock.Now())
	log.FromContext(ctx).V(1).Info("Judged", "workerCluster", name, "state", state)
	count(name, state)
	if err := r.reportPause(ctx, o, state); err != nil {
		return time.Time{}, err
	}
	if state == notLost {
		if err := r.endForgetting(ctx, o); err != nil {
			return time.Time{}, err
		}
	}
	due, err := r.treat(ctx, o, state, dispatches)
	return requeue.Earlier(again, due), err
}

func (r *Reconciler) observe(ctx context.Context, name v1alpha1.ClusterName) (*observation, error) {
	o := &observation{name: name, contact: r.Connections.Contact(name)}
	worker := &v1alpha1.WorkerCluster{}
	if err := r.Hub.Get(ctx, client.ObjectKey{Name: string(name)}, worker); err != nil {
		if apierrors.IsNotFound(err) {
			return o, nil
		}
		return nil, fmt.Errorf("get WorkerCluster %q: %w", name, err)
	}
	o.worker = worker
	if o.contact.Answers {
		return o, nil
	}
	var all v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list WorkerClusters: %w", err)
	}
	o.losses = lossesWith(worker, all.Items, r.PauseWindow)
	o.cutOff = o.losses.exceed(r.PauseAt)
	return o, nil
}

// verifyGone fails if the API server has a WorkerCluster that the cache does not show.
func (r *Reconciler) verifyGone(ctx context.Context, name v1alpha1.ClusterName) error {
	err := r.HubReader.Get(ctx, client.ObjectKey{Name: string(name)}, &v1alpha1.WorkerCluster{})
	switch {
	case err == nil:
		return errOutdated
	case apierrors.IsNotFound(err):
		return nil
	default:
		return fmt.Errorf("get WorkerCluster %q: %w", name, err)
	}
}

// treat decides about each Dispatch, and carries the decisions out. If nothing has changed, it sends no requests.
func (r *Reconciler) treat(
	ctx context.Context, o *observation, state workerState, dispatches []v1alpha1.Dispatch,
) (again time.Time, err error) {
	now := r.Clock.Now()
	var todo []task
	for i := range dispatches {
		of := o.stateFor(&dispatches[i], state)
		if of <= withinGrace {
			continue
		}
		f, err := r.observeJob(ctx, o, of, &dispatches[i])
		if err != nil {
			return time.Time{}, err
		}
		decided := f.decide(now)
		again = requeue.Earlier(again, decided.again)
		if decided.do != leave && !f.isReported(decided) {
			todo = append(todo, task{observation: f, decided: decided})
		}
	}
	return again, each(todo, r.Parallel, func(t task) error { return r.act(ctx, o, t) })
}

type task struct {
	observation *jobObservation
	decided     decision
}

func (r *Reconciler) observeJob(ctx context.Context, o *observation, state workerState, d *v1alpha1.Dispatch) (*jobObservation, error) {
	f := &jobObservation{dispatch: d, worker: state, stop: r.observeStop(o, d), deletionGrace: r.DeletionGrace}
	if o.worker != nil {
		f.reason = o.worker.Status.ReadyReason()
		if state != elsewhere {
			f.since = awaySince(o.worker)
		}
	}
	var err error
	if record.IsGivenUp(d) {
		if f.hasTombstone, err = r.hasTombstone(ctx, o, d); err != nil {
			return nil, err
		}
	}
	f.job, err = records.Job(ctx, r.Hub, client.ObjectKeyFromObject(d), client.UnsafeDisableDeepCopy)
	return f, err
}

// observeStop returns what is known about the stop of the fenced copies. The lease is read after the contact, so that a
// worker that answers meanwhile makes the stop later, never earlier.
func (r *Reconciler) observeStop(o *observation, d *v1alpha1.Dispatch) agentStop {
	if d.Spec.Failover != v1alpha1.FailoverFenced {
		return agentStop{}
	}
	var known agentStop
	known.untried = o.contact.Untried
	known.silent = !o.contact.SilentSince.IsZero() && !o.contact.SilentSince.After(o.contact.UnreachableSince)
	if at, ok := r.Agents.StoppedAt(o.name, o.clusterID(d)); ok {
		known.at = at
	}
	return known
}

// clusterID is the ID of the cluster on which the Dispatch was placed, empty if it is not known.
func (o *observation) clusterID(d *v1alpha1.Dispatch) types.UID {
	if o.worker == nil {
		return d.Spec.ClusterID
	}
	return cmp.Or(d.Spec.ClusterID, o.worker.Status.ClusterID)
}
