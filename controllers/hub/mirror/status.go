// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/attempts"
)

const (
	// statusWindow is how long changes of a live job's status are gathered into one write. The end of a job does not wait.
	statusWindow = time.Second
	// runningDelay is how long a copy lives before its Dispatch says Running. A shorter job is one status write cheaper.
	runningDelay = 10 * time.Second
)

// syncStatus brings the status of a live copy to the hub TrainJob, and says when to look again if it gathers changes.
func (r *reconciler) syncStatus(ctx context.Context, f facts, past *recollection) (time.Duration, error) {
	if !hasNews(f) || past.pushed == hashStatus(f.copy) {
		past.changedAt = time.Time{}
		return 0, nil
	}
	now := r.Clock.Now()
	if past.changedAt.IsZero() {
		past.changedAt = now
	}
	if due := statusWindow - now.Sub(past.changedAt); due > 0 {
		return due, nil
	}
	if ok, err := r.maySpeak(ctx, f, past); !ok || err != nil {
		return conflictDelay, err
	}
	return 0, r.writeJobStatus(ctx, f, past)
}

// hasNews is true if the copy's status says something that the hub's does not. Counters that are all zero are no news to a hub
// that has none, and a copy without a status says nothing.
func hasNews(f facts) bool {
	if f.copy.Object["status"] == nil || equality.Semantic.DeepEqual(f.job.Object["status"], f.copy.Object["status"]) {
		return false
	}
	if status, _ := f.job.Object["status"].(map[string]any); len(status) > 0 {
		return true
	}
	status, _ := f.copy.Object["status"].(map[string]any)
	for field, value := range status {
		if field != "jobsStatus" || anyCounter(value) {
			return true
		}
	}
	return false
}

func anyCounter(jobsStatus any) bool {
	jobs, _ := jobsStatus.([]any)
	for _, job := range jobs {
		fields, _ := job.(map[string]any)
		for _, value := range fields {
			if count, ok := value.(int64); ok && count > 0 {
				return true
			}
		}
	}
	return false
}

// writeJobStatus makes the hub TrainJob's status that of the copy. The optimistic lock keeps it from reaching another TrainJob
// that has got the same name meanwhile, or one that has ended.
func (r *reconciler) writeJobStatus(ctx context.Context, f facts, past *recollection) error {
	updated := f.job.DeepCopy()
	if status, ok, _ := unstructured.NestedMap(f.copy.Object, "status"); ok {
		updated.Object["status"] = status
	}
	patch := client.MergeFromWithOptions(f.job, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Status().Patch(ctx, updated, patch, fieldOwner); err != nil {
		err = fmt.Errorf("patch status of TrainJob %s/%s with what worker %q says: %w", f.job.GetNamespace(), f.job.GetName(), r.Cluster, err)
		return r.ender().Refused(ctx, f.dispatch, v1alpha1.ReasonTrainJobStatusRefused, err)
	}
	past.changedAt, past.pushed, past.pushedAt = time.Time{}, hashStatus(f.copy), r.Clock.Now()
	return r.ender().Accepted(ctx, f.dispatch, v1alpha1.ReasonTrainJobStatusRefused)
}

// hashStatus is of what was last said, so that a field which the hub's CRD prunes is not said again and again.
func hashStatus(copy *unstructured.Unstructured) uint64 {
	encoded, err := json.Marshal(copy.Object["status"]) // sorts keys
	if err != nil {
		return 0 // Not JSON, which no API server sends.
	}
	hash := fnv.New64a()
	_, _ = hash.Write(encoded)
	return hash.Sum64()
}

// reportRunning says on the Dispatch that the copy exists, once it has lived for runningDelay, and from then on how it gets on.
func (r *reconciler) reportRunning(ctx context.Context, f facts, past *recollection) (time.Duration, error) {
	var due time.Duration
	switch {
	case f.dispatch.Status.Phase == v1alpha1.PhaseEvicting:
		// The eviction was taken back in time.
	case !f.dispatch.WasCopied():
		due = r.runningDue(f, past)
	case hasProgressed(f):
		due = r.progressDue(past)
	default:
		past.progressedAt = time.Time{}
		return 0, nil
	}
	if due > 0 {
		return due, nil
	}
	past.progressedAt = time.Time{}
	return 0, r.ender().UpdateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		r.setCopied(f, status)
		clearEvicting(status)
		status.Phase, status.Reason = phaseOf(f)
	})
}

// phaseOf is the phase, with its reason, of a job that has a copy.
func phaseOf(f facts) (v1alpha1.DispatchPhase, string) {
	if isHeld(f) {
		return v1alpha1.PhaseQueued, v1alpha1.ReasonHeldByWorker
	}
	return v1alpha1.PhaseRunning, v1alpha1.ReasonCopied
}

// clearEvicting is for an eviction that was taken back. That there is no room elsewhere stays said.
func clearEvicting(status *v1alpha1.DispatchStatus) {
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.DispatchEvicting) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchEvicting)
	}
}

// reportReturned says that the worker is back, and nothing else is done until that is on record: somebody may be giving the attempt up,
// and of the two writes only one succeeds. The write wakes us.
func (r *reconciler) reportReturned(ctx context.Context, f facts) error {
	return r.ender().UpdateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWorkerLost)
		switch {
		case f.dispatch.Spec.Eviction != nil:
			status.Phase, status.Reason = v1alpha1.PhaseEvicting, string(f.dispatch.Spec.Eviction.Reason)
		case f.dispatch.WasCopied():
			status.Phase, status.Reason = v1alpha1.PhaseRunning, v1alpha1.ReasonCopied
		default:
			status.Phase, status.Reason = v1alpha1.PhasePending, ""
		}
	})
}

// runningDue is how long until the Dispatch has to say Running. One that says Waiting has no time to lose.
func (r *reconciler) runningDue(f facts, past *recollection) time.Duration {
	if f.dispatch.Status.Phase == v1alpha1.PhaseWaiting {
		return 0
	}
	return max(0, runningDelay-r.Clock.Since(past.copiedAt))
}

// progressDue is how long until the Dispatch has to show how the copy gets on. Changes are gathered, and none is shown of a copy
// that may yet turn out to be short.
func (r *reconciler) progressDue(past *recollection) time.Duration {
	now := r.Clock.Now()
	if past.progressedAt.IsZero() {
		past.progressedAt = now
	}
	return max(0, statusWindow-now.Sub(past.progressedAt), runningDelay-now.Sub(past.copiedAt))
}

// reportFinished says on the Dispatch how the copy ended, after the hub TrainJob says it.
func (r *reconciler) reportFinished(ctx context.Context, f facts) error {
	end := trainjobs.Terminal(f.job)
	if end == nil {
		end = trainjobs.Terminal(f.copy)
	}
	err := r.ender().Finish(ctx, f.dispatch, end, func(status *v1alpha1.DispatchStatus) { r.showCopy(f, status) })
	if err != nil {
		return err
	}
	r.recordFailed(f, end)
	return nil
}

// endAttempt says on the Dispatch that the current attempt has no copy and will have none, so that placement decides again.
func (r *reconciler) endAttempt(ctx context.Context, f facts, past *recollection, outcome v1alpha1.Outcome, message string) error {
	if err := r.ender().End(ctx, f.dispatch, outcome, message); err != nil {
		return err
	}
	past.ended = true
	r.recordEnded(f, outcome, message)
	return nil
}

// ender writes what is said of an attempt.
func (r *reconciler) ender() attempts.Ender {
	return attempts.Ender{Hub: r.Hub, Clock: r.Clock}
}

// setCopied says that the copy exists, and how it gets on.
func (r *reconciler) setCopied(f facts, status *v1alpha1.DispatchStatus) {
	r.showCopy(f, status)
	attempts.SetCopied(status, f.dispatch, r.Clock.Now())
}

// showCopy shows which the copy is, and how far it is or was.
func (r *reconciler) showCopy(f facts, status *v1alpha1.DispatchStatus) {
	showProgress(f, status)
	if f.isCurrent(f.copy) {
		status.CopyUID = f.copy.GetUID()
	}
}

// setTrue sets a condition that is True.
func (r *reconciler) setTrue(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, kind, reason, message string) {
	attempts.SetCondition(status, dispatch, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	}, r.Clock.Now())
}
