// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/attempts"
)

// evict carries out an eviction a step further: it says so and deletes the copy, and when the worker has neither the copy nor a pod
// of it that may run, it ends the attempt. What has been done is found again on the two API servers, so it can stop anywhere.
func (r *reconciler) evict(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	if past.ended {
		return reconcile.Result{}, nil // Reported; placement's answer is on its way.
	}
	if f.copy != nil && f.isOurs(f.copy) && f.copy.GetDeletionTimestamp() != nil {
		evictingErr := r.reportEvicting(ctx, f)
		due, statusErr := r.reportStopping(ctx, f, past)
		return reconcile.Result{RequeueAfter: due}, cmp.Or(evictingErr, statusErr) // The end of the copy wakes us.
	}
	// The cache may not show a copy whose creation got no answer, nor that the copy has just ended.
	found, err := r.lookFor(ctx, worker, f, past)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch found.presence {
	case arriving:
		return reconcile.Result{RequeueAfter: found.wait}, nil
	case current, second, older:
		f.copy = found.copy
		return r.stop(ctx, worker, f, past, found.presence)
	case podsAlive:
		f.copy = nil
		return reconcile.Result{RequeueAfter: endCheck}, r.reportEvicting(ctx, f)
	case foreign:
		if !f.wasCopied() {
			return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeNameConflict, r.conflictMessage(found.copy))
		}
	case nothing:
	}
	if ok, err := r.takeBackStatus(ctx, f, past); !ok || err != nil {
		return reconcile.Result{RequeueAfter: conflictDelay}, err
	}
	return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.Outcome(f.dispatch.Spec.Eviction.Reason), r.evictionMessage(f.dispatch))
}

// stop deletes the copy as the worker's API server has it, unless it has ended.
func (r *reconciler) stop(
	ctx context.Context, worker client.Client, f facts, past *recollection, what presence,
) (reconcile.Result, error) {
	switch {
	case what == second:
		return reconcile.Result{RequeueAfter: endCheck}, r.withdrawOrSay(ctx, worker, f)
	case what == older: // garbagecollection deletes it.
		return reconcile.Result{RequeueAfter: endCheck}, nil
	case trainjobs.Terminal(f.copy) != nil:
		return r.finish(ctx, f, past)
	}
	evictingErr := r.reportEvicting(ctx, f)
	if evictingErr != nil && !attempts.IsFinal(evictingErr) {
		return reconcile.Result{}, evictingErr
	}
	// What the hub refuses to be told keeps no copy from being deleted.
	if err := r.orSay(ctx, f, r.deleteUnchanged(ctx, worker, f.copy)); err != nil {
		return reconcile.Result{}, err
	}
	_, statusErr := r.reportStopping(ctx, f, past)
	// Nobody may tell us of the end of a copy that the cache does not show.
	return reconcile.Result{RequeueAfter: endCheck}, cmp.Or(evictingErr, statusErr)
}

// reportStopping brings the status of a copy that is being stopped to the hub TrainJob: a queue on the hub gives the job's quota to others
// when the status says that no pod is active. It returns when to look again, zero if nothing is gathered. What no copy has said yet is
// said at once, as the status goes with the copy.
func (r *reconciler) reportStopping(ctx context.Context, f facts, past *recollection) (time.Duration, error) {
	if !f.isCurrent(f.copy) || trainjobs.Terminal(f.copy) != nil {
		return 0, nil
	}
	if past.pushed == 0 && f.job.Object["status"] == nil && hasNews(f) {
		return 0, r.writeJobStatus(ctx, f, past)
	}
	return r.syncStatus(ctx, f, past)
}

// deleteUnchanged is withdraw of a copy as it was seen, and of one that has not ended since then. Otherwise it is a conflict.
func (r *reconciler) deleteUnchanged(ctx context.Context, worker client.Client, copy *unstructured.Unstructured) error {
	uid, version := copy.GetUID(), copy.GetResourceVersion()
	return r.delete(ctx, worker, copy, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// reportEvicting says on the Dispatch that the attempt is being ended.
func (r *reconciler) reportEvicting(ctx context.Context, f facts) error {
	return r.ender().UpdateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		if f.copy != nil && !f.dispatch.WasCopied() {
			r.setCopied(f, status)
		}
		reason := string(f.dispatch.Spec.Eviction.Reason)
		r.setTrue(status, f.dispatch, v1alpha1.DispatchEvicting, reason, r.evictionMessage(f.dispatch))
		status.Phase, status.Reason = v1alpha1.PhaseEvicting, reason
	})
}

// evictionMessage is for the owner of the job.
func (r *reconciler) evictionMessage(dispatch *v1alpha1.Dispatch) string {
	if message := dispatch.Spec.Eviction.Message; message != "" {
		return message
	}
	return fmt.Sprintf("the job has to leave worker %q", r.Cluster)
}

// takeBackStatus removes from the hub TrainJob what a copy has said that is gone: its counters are of pods that are no more, and what
// is true of the job now says the Dispatch. It is false if the cached Dispatch is not the API server's: another copy may be speaking.
func (r *reconciler) takeBackStatus(ctx context.Context, f facts, past *recollection) (bool, error) {
	shown := f.job.Object["status"] != nil || past.pushed != 0 // The cache may not show yet what this process has written.
	if !shown || trainjobs.Terminal(f.job) != nil {
		return true, nil
	}
	if ok, err := r.dispatchIsCurrent(ctx, f, past); !ok || err != nil {
		return false, err
	}
	if err := r.ender().TakeBackStatus(ctx, f.job); err != nil {
		return false, err
	}
	past.pushed = 0
	return true, nil
}
