// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// statusWindow is how long changes of a live job's status are gathered into one write. The end of a job does not wait.
	statusWindow = time.Second
	// runningDelay is how long a copy lives before its Dispatch says Running. A shorter job is one status write cheaper.
	runningDelay = 10 * time.Second
	// historyLimit, refusalLimit and messageLimit are those of the CRD.
	historyLimit = 16
	refusalLimit = 1000
	messageLimit = 1024
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
	return 0, r.writeJobStatus(ctx, f, past)
}

// hasNews is true if the copy's status says something that the hub's does not. Counters that are all zero are no news to a hub
// that has none.
func hasNews(f facts) bool {
	if equality.Semantic.DeepEqual(f.job.Object["status"], f.copy.Object["status"]) {
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
		return fmt.Errorf("patch status of TrainJob %s/%s: %w", f.job.GetNamespace(), f.job.GetName(), err)
	}
	past.changedAt, past.pushed = time.Time{}, hashStatus(f.copy)
	return nil
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
	return 0, r.updateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		r.setCopied(f, status)
		clearEvicting(status)
		status.Phase, status.Reason = v1alpha1.PhaseRunning, v1alpha1.ReasonCopied
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
	outcome := v1alpha1.Outcome(end.Type) // Complete or Failed, as the reasons are.
	err := r.updateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		r.setCopied(f, status)
		clearEvicting(status)
		r.setCondition(status, f.dispatch, v1alpha1.DispatchFinished, metav1.ConditionTrue, end.Type, end.Message)
		status.Phase, status.Reason = v1alpha1.PhaseFinished, end.Type
		r.addHistory(status, f.dispatch, outcome, end.Message)
	})
	if err != nil {
		return err
	}
	r.recordFinished(f, end)
	jobsFinished.WithLabelValues(string(r.Cluster), end.Type).Inc()
	return nil
}

// endAttempt says on the Dispatch that the current attempt has no copy and will have none, so that placement decides again.
func (r *reconciler) endAttempt(ctx context.Context, f facts, past *recollection, outcome v1alpha1.Outcome, message string) error {
	err := r.updateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		status.Cluster, status.Attempt, status.CopyUID = r.Cluster, f.dispatch.Spec.Attempt, ""
		clearProgress(status)
		clearEvicting(status)
		r.setCondition(status, f.dispatch, v1alpha1.DispatchMirrored, metav1.ConditionFalse, string(outcome), message)
		if outcome != v1alpha1.OutcomePreempted { // Which says nothing against the worker.
			r.addRefusal(status, outcome, message)
		}
		status.Phase, status.Reason = v1alpha1.PhasePending, string(outcome)
		r.addHistory(status, f.dispatch, outcome, message)
	})
	if err != nil {
		return err
	}
	past.ended = true
	attemptsEnded.WithLabelValues(string(r.Cluster), string(outcome)).Inc()
	r.recordEnded(f, outcome, message)
	return nil
}

// setCopied says that the copy exists, or did until it ended, and how it gets on.
func (r *reconciler) setCopied(f facts, status *v1alpha1.DispatchStatus) {
	showProgress(f, status)
	status.Cluster, status.Attempt = r.Cluster, f.dispatch.Spec.Attempt
	if f.copy != nil {
		status.CopyUID = f.copy.GetUID()
	}
	status.Explanation = nil
	r.setCondition(status, f.dispatch, v1alpha1.DispatchPlaced, metav1.ConditionTrue, v1alpha1.ReasonPlaced,
		fmt.Sprintf("placed on worker %q", r.Cluster))
	r.setCondition(status, f.dispatch, v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonCopied,
		fmt.Sprintf("the copy exists on worker %q", r.Cluster))
}

func (r *reconciler) setCondition(
	status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, kind string, value metav1.ConditionStatus, reason, message string,
) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             value,
		ObservedGeneration: dispatch.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		Reason:             reason,
		Message:            shorten(message, messageLimit),
	})
}

func (r *reconciler) addHistory(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, outcome v1alpha1.Outcome, message string) {
	status.History = append(status.History, v1alpha1.Attempt{
		Attempt: dispatch.Spec.Attempt,
		Cluster: r.Cluster,
		To:      metav1.NewTime(r.Clock.Now()),
		Outcome: outcome,
		Message: shorten(message, messageLimit),
	})
	if excess := len(status.History) - historyLimit; excess > 0 {
		status.History = status.History[excess:]
	}
}

// addRefusal counts a worker that ended an attempt without having run it.
func (r *reconciler) addRefusal(status *v1alpha1.DispatchStatus, outcome v1alpha1.Outcome, message string) {
	at := slices.IndexFunc(status.Refusals, func(refusal v1alpha1.Refusal) bool { return refusal.Cluster == r.Cluster })
	if at < 0 {
		if len(status.Refusals) == refusalLimit {
			status.Refusals = status.Refusals[1:]
		}
		status.Refusals = append(status.Refusals, v1alpha1.Refusal{Cluster: r.Cluster})
		at = len(status.Refusals) - 1
	}
	refusal := &status.Refusals[at]
	refusal.Count++
	refusal.Outcome, refusal.Message, refusal.Last = outcome, shorten(message, messageLimit), metav1.NewTime(r.Clock.Now())
}

// updateStatus writes a Dispatch's status if change changes it.
func (r *reconciler) updateStatus(ctx context.Context, dispatch *v1alpha1.Dispatch, change func(*v1alpha1.DispatchStatus)) error {
	updated := dispatch.DeepCopy()
	change(&updated.Status)
	if equality.Semantic.DeepEqual(updated.Status, dispatch.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(dispatch, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Status().Patch(ctx, updated, patch, fieldOwner); err != nil {
		return fmt.Errorf("patch status of Dispatch %s/%s: %w", dispatch.Namespace, dispatch.Name, err)
	}
	return nil
}
