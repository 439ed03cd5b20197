// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// ClearProgress removes what is shown of a copy.
func ClearProgress(status *v1alpha1.DispatchStatus) {
	status.Steps, status.Restarts, status.Stops, status.StartTime, status.CompletionTime = nil, 0, 0, nil, nil
	status.FirstRunningTime, status.Progress, status.LastCheckpoint = nil, nil, nil
}

// CopiedPhase is the phase of a job whose copy may run. shown is what the Dispatch says. now has the present steps and
// restarts.
func CopiedPhase(shown, now *v1alpha1.DispatchStatus) v1alpha1.DispatchPhase {
	isRunning := func(step v1alpha1.Step) bool { return step.State == v1alpha1.StepRunning }
	isWaiting := func(step v1alpha1.Step) bool { return step.State == v1alpha1.StepWaiting }
	wentBack := func(step v1alpha1.Step) bool {
		return isWaiting(step) && slices.Contains(shown.Steps, v1alpha1.Step{Name: step.Name, State: v1alpha1.StepRunning})
	}
	switch {
	case slices.ContainsFunc(now.Steps, isRunning), len(now.Steps) > 0 && !slices.ContainsFunc(now.Steps, isWaiting):
		return v1alpha1.PhaseRunning
	case now.Restarts > 0, shown.Phase == v1alpha1.PhaseRestarting, slices.ContainsFunc(now.Steps, wentBack):
		return v1alpha1.PhaseRestarting
	default:
		return v1alpha1.PhaseStarting
	}
}

// Trouble is the condition Healthy of a Dispatch that says that something keeps the copy from making progress, nil if
// it does not.
func Trouble(dispatch *v1alpha1.Dispatch) *metav1.Condition {
	healthy := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchHealthy)
	if healthy == nil || healthy.Status != metav1.ConditionFalse {
		return nil
	}
	return healthy
}

// SetHealth shows the condition Healthy. A trouble is the reason of the phase too, if the copy may run.
func SetHealth(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, healthy metav1.Condition, now time.Time) {
	SetCondition(status, dispatch, healthy, now)
	if healthy.Status == metav1.ConditionFalse && status.Reason == v1alpha1.ReasonCopied {
		status.Reason = healthy.Reason
	}
}

// setHealthUnknown says that the last known health of the copy may be out of date.
func setHealthUnknown(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, now time.Time) {
	healthy := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchHealthy)
	if healthy == nil || healthy.Reason == v1alpha1.ReasonWorkerLost {
		return
	}
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchHealthy, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonWorkerLost,
		Message: fmt.Sprintf("the worker does not answer; it last said %s: %s", healthy.Reason, healthy.Message),
	}, now)
}
