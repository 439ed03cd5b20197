// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// SetWriteRefused says that the hub's API server refuses a write for good. It sets the condition WriteRefused and, for
// a job that waits, the reason of the condition Placed. reason is one of WriteRefused. message is the API server's.
func SetWriteRefused(dispatch *v1alpha1.Dispatch, reason, message string, now time.Time) {
	status := &dispatch.Status
	said := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchWriteRefused)
	if said != nil && said.Status == metav1.ConditionTrue && said.Reason == reason &&
		said.ObservedGeneration == dispatch.Generation {
		return // Words that differ each time, as with the ID of a request, are not worth a write: it would wake the job at once.
	}
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchWriteRefused, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	}, now)
	if dispatch.Spec.Cluster == "" && AttemptOf(dispatch) != GivenUp { // That is a fact on record.
		if isOffList(status) {
			keepWaitingSince(status, now)
		}
		SetCondition(status, dispatch, metav1.Condition{
			Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWriteRefused, Message: message,
		}, now)
		status.Phase, status.Reason, status.Explanation = v1alpha1.PhaseWaiting, v1alpha1.ReasonWriteRefused, nil
	}
}

// IsWriteRefused is true if the condition WriteRefused has this reason.
func IsWriteRefused(status *v1alpha1.DispatchStatus, reason string) bool {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchWriteRefused)
	return condition != nil && condition.Reason == reason
}

// ClearWriteRefused removes the condition WriteRefused, whichever write it is about.
func ClearWriteRefused(status *v1alpha1.DispatchStatus) {
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWriteRefused)
}

// ClearOutdatedRefusal removes the condition WriteRefused before a write of the Dispatch, because the condition is
// about the last write. It keeps a condition that is about the status of the TrainJob.
func ClearOutdatedRefusal(status *v1alpha1.DispatchStatus) {
	if !IsWriteRefused(status, v1alpha1.ReasonTrainJobStatusRefused) {
		ClearWriteRefused(status)
	}
}

// ShrinkStatus removes or shortens all that is only for people. It leaves what controllers decide from.
func ShrinkStatus(status *v1alpha1.DispatchStatus) {
	const words = 64
	status.Explanation, status.Steps = nil, nil
	for i := range status.Refusals {
		status.Refusals[i].Message = Shorten(status.Refusals[i].Message, words)
	}
	for i := range status.Conditions {
		if status.Conditions[i].Type != v1alpha1.DispatchWriteRefused {
			status.Conditions[i].Message = Shorten(status.Conditions[i].Message, words)
		}
	}
}

// MinBackoff and MaxBackoff limit Backoff.
const (
	MinBackoff = time.Minute
	MaxBackoff = 30 * time.Minute
)

// Backoff is how long something is not tried again that has failed a number of times: MinBackoff after the first time,
// doubled each time up to MaxBackoff. A worker that refused a copy, or has a foreign job of its name, is not asked
// again for so long, and nobody is stopped for a job for which others were stopped in vain.
func Backoff(count int32) time.Duration {
	if count <= 0 {
		return 0
	}
	delay := MinBackoff
	for ; count > 1 && delay < MaxBackoff; count-- {
		delay *= 2
	}
	return min(delay, MaxBackoff)
}
