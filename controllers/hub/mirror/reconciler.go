// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// reconciler reconciles the keys of one worker.
type reconciler struct {
	Options
	started   time.Time
	creations *creations
	// attempts has a *attempt for each key, a NamespacedName, that is live on this worker.
	attempts sync.Map
}

// Reconcile brings one TrainJob of this worker a step further.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker, err := copies.Connect(r.Cluster, r.Worker)
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // Not connected: the keys come again with the next connection.
	}
	v, err := r.observe(ctx, worker, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	what := decide(r.Cluster, v.observation)
	log.FromContext(ctx).V(1).Info("Decided", "state", what)
	due, err := r.actOrTry(ctx, v, what, request.NamespacedName)
	result, err := requeue.AfterConflict(reconcile.Result{RequeueAfter: due}, err)
	switch seconds, asked := apierrors.SuggestsClientDelay(err); {
	case asked && seconds > 0:
		log.FromContext(ctx).Info("The API server asks to retry later", "reason", err.Error(), "seconds", seconds)
		return reconcile.Result{RequeueAfter: time.Duration(seconds) * time.Second}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return result, nil
}

// actOrTry does what the state asks for. If nothing is to be done, it looks for a question whether the worker would take
// the job.
func (r *reconciler) actOrTry(ctx context.Context, v *visit, what state, key types.NamespacedName) (time.Duration, error) {
	at := place{r.Cluster, key}
	asked := r.Trials.of(at)
	if what != idle || asked == nil {
		return v.act(ctx, what)
	}
	observed := observation{hubID: r.HubID, job: asked.job, dispatch: asked.dispatch}
	id := observed.dispatch.Spec.ClusterID
	observed.otherCluster = id != "" && id != r.ClusterID
	side := hubSide{reconciler: r, observation: observed, attempt: &asked.attempt}
	return (&visit{hubSide: side, worker: v.worker}).try(ctx, at, asked)
}

// act does what the state asks for. It returns when to look again, zero if an event will tell.
func (v *visit) act(ctx context.Context, what state) (time.Duration, error) {
	if v.attempt.ended && (what == absent || what == blocked || what == evicting || what == copyDeleted) {
		return 0, nil // The end of the attempt is reported, and placement decides next.
	}
	switch what {
	case absent:
		return v.create(ctx)
	case blocked:
		if v.isCurrent(v.copy) {
			return v.awaitEnd(ctx) // Somebody on the worker has deleted it.
		}
		return v.giveBack(ctx)
	case conflicting:
		return v.conflict(ctx)
	case misplaced:
		announcer{&v.hubSide}.misplaced()
	case returned:
		return 0, v.reportReturned(ctx)
	case mirrored:
		return v.mirror(ctx)
	case evicting:
		return v.evict(ctx)
	case finished:
		return v.finish(ctx)
	case copyDeleted:
		return v.resolveMissing(ctx)
	case withdrawing:
		return v.withdraw(ctx)
	case released:
		return v.release(ctx)
	case idle:
	}
	return 0, nil
}

// mirror keeps the copy what it should be and brings its status to the hub. No step waits for the one before to
// succeed. The first error is returned as it is: a conflict keeps its type, and is retried without a log line.
func (v *visit) mirror(ctx context.Context) (time.Duration, error) {
	announcer{&v.hubSide}.uncopied()
	keepDue, keepErr := keeper{v}.keep(ctx)
	statusDue, statusErr := v.syncStatus(ctx)
	checkup{v}.measureStart()
	healthDue, healthErr := checkup{v}.observe(ctx)
	stuckDue, refused, stuckErr := v.refuseStuck(ctx)
	if refused || stuckErr != nil {
		return 0, cmp.Or(stuckErr, keepErr, statusErr, healthErr) // The write wakes us.
	}
	runningDue, runningErr := v.reportRunning(ctx)
	due := requeue.Sooner(requeue.Sooner(keepDue, healthDue), requeue.Sooner(statusDue, runningDue))
	due = requeue.Sooner(due, stuckDue)
	if v.believed {
		due = requeue.Sooner(due, createLag-v.Clock.Since(v.attempt.copy.since))
	}
	return due, cmp.Or(keepErr, statusErr, healthErr, runningErr)
}

// visit is one reconcile of one job. Its methods do what the state of the job asks for.
type visit struct {
	hubSide
	worker copies.Worker
	// runtimeName is the name of the job's runtime on the worker, once propagate has made sure of it. Empty: as on the hub.
	runtimeName string
}

// hubSide is the part of a visit that needs no worker: its methods read from the hub and write to it.
type hubSide struct {
	*reconciler
	observation
	// attempt is empty if it is not live on this worker.
	attempt *attempt
}

// observe reads the key's objects from the caches, and adds what this process remembers.
func (r *reconciler) observe(ctx context.Context, worker copies.Worker, key types.NamespacedName) (*visit, error) {
	v := &visit{hubSide: hubSide{reconciler: r, observation: observation{hubID: r.HubID}, attempt: &attempt{}}, worker: worker}
	dispatch, err := records.Dispatch(ctx, r.Hub, key)
	if dispatch == nil {
		r.attempts.Delete(key)
		return v, err
	}
	v.dispatch = dispatch
	v.otherCluster = dispatch.Spec.ClusterID != "" && dispatch.Spec.ClusterID != r.ClusterID
	if v.job, err = records.Job(ctx, r.Hub, key); err != nil {
		return v, err
	}
	if v.copy, err = worker.Cached(ctx, key); err != nil {
		return v, err
	}
	if dispatch.Spec.Cluster != r.Cluster || dispatch.IsFinished() {
		r.attempts.Delete(key) // The job is not live here.
		return v, nil
	}
	v.attempt = r.attemptOf(key, dispatch)
	v.held = v.attempt.suspension.held
	v.attempt.copy.complete(&v.observation, r.Clock.Now())
	if v.copy != nil && !v.believed && v.isOurs(v.copy) {
		v.attempt.absence = absence{}
	}
	v.observeCourse(ctx)
	return v, nil
}

// observeCourse reads the JobSet of the copy, if it is there and the hub may read it. Nothing fails without it.
func (v *visit) observeCourse(ctx context.Context) {
	if v.isCurrent(v.copy) {
		// A copy that has ended before its deletion began has not run since.
		if stopped := cmp.Or(trainjobs.CompletionTime(v.copy), v.copy.GetDeletionTimestamp()); stopped != nil {
			v.attempt.stopped = stopped
		}
		jobSet := trainjobs.NewJobSet()
		err := v.worker.Get(ctx, client.ObjectKeyFromObject(v.copy), jobSet)
		v.jobSetsSeen = client.IgnoreNotFound(err) == nil
		if err == nil && metav1.IsControlledBy(jobSet, v.copy) {
			if seen, err := courseOf(jobSet); err == nil {
				v.attempt.course = &seen
			}
		} else if err == nil {
			v.otherJobSet = jobSet
			v.noteOtherJobSet()
		}
	}
	v.course = v.attempt.course
}

// doubted is true while the hub's caches may lag behind the writes of the replica that led before.
func (r *reconciler) doubted() bool {
	return r.Clock.Since(r.started) < records.StartLag
}

// dispatchIsCurrent is true if the cached Dispatch is the API server's. It is asked before a step that would be wrong
// otherwise. It sends a request only soon after the start, so that a job that runs and ends costs none.
func (h *hubSide) dispatchIsCurrent(ctx context.Context) (bool, error) {
	if h.attempt.verified || !h.doubted() {
		return true, nil
	}
	var err error
	h.attempt.verified, err = h.isStored(ctx)
	return h.attempt.verified, err
}

// isStored is true if the API server has the Dispatch as it was observed.
func (h *hubSide) isStored(ctx context.Context) (bool, error) {
	stored := &v1alpha1.Dispatch{}
	if err := h.HubReader.Get(ctx, client.ObjectKeyFromObject(h.dispatch), stored); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return stored.ResourceVersion == h.dispatch.ResourceVersion, nil
}
