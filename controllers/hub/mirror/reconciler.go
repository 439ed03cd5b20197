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
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/hubcache"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// reconciler reconciles the keys of one worker.
type reconciler struct {
	options   Options
	started   time.Time
	creations *creations
	// pinned is what is known of the runtimes that jobs pin.
	pinned *pinned
	// attempts has a *attempt for each key, a NamespacedName, that is live on this worker.
	attempts sync.Map
}

// here is the worker.
func (r *reconciler) here() judgement.Worker {
	return judgement.Worker{Name: r.options.Cluster, ClusterID: r.options.ClusterID}
}

// holdCheck is how often a key is judged again whose first copy is held back.
const holdCheck = time.Second

// Reconcile sees what there is of one key, judges it once, and does what is to be done about the TrainJob that has the
// name, and about the attempt on record.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	worker, err := copies.Connect(r.options.Cluster, r.options.Worker)
	switch {
	case err != nil: // Not connected: the keys come again with the next connection.
		return reconcile.Result{RequeueAfter: r.options.Collector.Disconnected(key)}, nil //nolint:nilerr // It is no failure.
	case key.Namespace == "":
		due, err := r.options.Collector.Execute(ctx, worker, key.Name)
		return requeue.AfterLag(reconcile.Result{RequeueAfter: due}, err)
	}
	// For a worker with many finished copies the hub is not asked for each: the cache is about to read their Dispatches.
	seen, known, err := r.observe(hubcache.Patiently(ctx), worker, key)
	if err != nil {
		return requeue.AfterConflict(reconcile.Result{}, err)
	}
	judged := seen.judged(r.here())
	if err := r.options.Collector.See(ctx, &judged); err != nil {
		return reconcile.Result{}, err
	}
	what := judgement.Of(judged)
	log.FromContext(ctx).V(1).Info("Decided", "state", what.Attempt, "copy", what.Copy)
	collected, collectErr := r.collect(ctx, worker, key, seen, judged, what.Copy)
	due, actErr := r.actOrTry(ctx, worker, key, seen, known, what.Attempt)
	result, err := requeue.AfterConflict(reconcile.Result{RequeueAfter: due}, cmp.Or(actErr, collectErr))
	result.RequeueAfter = requeue.Sooner(result.RequeueAfter, collected)
	switch seconds, asked := apierrors.SuggestsClientDelay(err); {
	case asked && seconds > 0:
		log.FromContext(ctx).Info("The API server asks to retry later", "reason", err.Error(), "seconds", seconds)
		return reconcile.Result{RequeueAfter: time.Duration(seconds) * time.Second}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return result, nil
}

// collect does what is to be done about the TrainJob that the cache shows. It returns when to look again.
func (r *reconciler) collect(
	ctx context.Context, worker copies.Worker, key types.NamespacedName, seen *observation, judged judgement.Seen, what judgement.Copy,
) (time.Duration, error) {
	copy := seen.copy
	if seen.believed {
		copy, what = nil, judgement.Gone
	}
	due, err := r.options.Collector.Collect(ctx, worker, key, copy, judged, what)
	result, err := requeue.AfterLag(reconcile.Result{RequeueAfter: due}, err)
	return result.RequeueAfter, err
}

// actOrTry does what the state asks for. If nothing is to be done, it looks for questions whether the worker would take
// the job, and what the worker would make of its pods.
func (r *reconciler) actOrTry(
	ctx context.Context, worker copies.Worker, key types.NamespacedName, seen *observation, known *attempt, what judgement.Attempt,
) (time.Duration, error) {
	if what != judgement.Idle {
		return r.stepsFor(worker, seen, known).act(ctx, what)
	}
	at := jobOnWorker{r.options.Cluster, key}
	asked, pods := r.options.Trials.of(at)
	if pods != nil && r.here().IsNamedBy(pods.dispatch) {
		if err := r.stepsOf(worker, pods).creator.ask(ctx, at, pods); err != nil {
			return 0, err
		}
	}
	if asked == nil || !r.here().IsNamedBy(asked.dispatch) {
		return 0, nil
	}
	return r.stepsOf(worker, asked).creator.try(ctx, at, asked)
}

// stepsOf returns the steps for the job of a question as if it were placed.
func (r *reconciler) stepsOf(worker copies.Worker, asked *trial) *steps {
	seen := &observation{hubID: r.options.HubID, job: asked.job, dispatch: asked.dispatch}
	return r.stepsFor(worker, seen, &asked.attempt)
}

// observe reads the key's objects from the caches, and adds what this process remembers. The attempt is empty if it is
// not live on this worker.
func (r *reconciler) observe(ctx context.Context, worker copies.Worker, key types.NamespacedName) (*observation, *attempt, error) {
	seen := &observation{hubID: r.options.HubID}
	var err error
	if seen.dispatch, err = records.Dispatch(ctx, r.options.Hub, key); err != nil {
		return nil, nil, err
	}
	if seen.copy, err = worker.Cached(ctx, key); err != nil {
		return nil, nil, err
	}
	dispatch := seen.dispatch
	if dispatch == nil {
		r.attempts.Delete(key)
		return seen, &attempt{}, nil
	}
	if seen.job, err = records.Job(ctx, r.options.Hub, key); err != nil {
		return nil, nil, err
	}
	if dispatch.Spec.Cluster != r.options.Cluster || dispatch.IsFinished() {
		r.attempts.Delete(key) // The job is not live here.
		return seen, &attempt{}, nil
	}
	known := r.attemptOf(key, dispatch)
	seen.held = known.suspension.held
	known.copy.complete(seen, r.options.Clock.Now())
	if seen.copy != nil && !seen.believed && seen.isOurs(seen.copy) {
		known.absence = absence{}
	}
	observeCourse(ctx, worker, seen, known)
	known.reports.note(seen, r.options.Clock.Now())
	seen.reports = known.reports
	return seen, known, nil
}

// observeCourse reads the JobSet of the copy, if it is there and the hub may read it. Nothing fails without it.
func observeCourse(ctx context.Context, worker copies.Worker, seen *observation, known *attempt) {
	if seen.isCurrent(seen.copy) {
		// A copy that has ended before its deletion began has not run since.
		if stopped := cmp.Or(trainjobs.CompletionTime(seen.copy), seen.copy.GetDeletionTimestamp()); stopped != nil {
			known.stopped = stopped
		}
		jobSet := trainjobs.NewJobSet()
		err := worker.Get(ctx, client.ObjectKeyFromObject(seen.copy), jobSet)
		seen.jobSetsSeen = client.IgnoreNotFound(err) == nil
		if err == nil && metav1.IsControlledBy(jobSet, seen.copy) {
			if course, err := courseOf(jobSet); err == nil {
				known.course = &course
			}
		} else if err == nil {
			seen.otherJobSet = jobSet
			known.stuck.note(jobSet, seen.copy)
		}
	}
	seen.course = known.course
}
