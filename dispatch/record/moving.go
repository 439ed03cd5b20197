// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// IsMoving is true from the eviction of a job from a drained worker until its next copy exists. A job that somebody
// suspends meanwhile is not moving any more, nor is a job that Kueue has taken back or dispatches itself.
func IsMoving(dispatch *v1alpha1.Dispatch) bool {
	state := StateOf(dispatch)
	if state == None || state == Finished || state == Leaving {
		return false
	}
	history := dispatch.Status.History
	switch {
	case dispatch.Spec.Eviction != nil:
		return dispatch.Spec.Eviction.Reason == v1alpha1.EvictionDrained
	case len(history) == 0 || history[len(history)-1].Outcome != v1alpha1.OutcomeDrained:
		return false
	case state == Waiting:
		placed := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchPlaced)
		return placed == nil || placed.Status != metav1.ConditionFalse || !ObstacleOf(placed.Reason).IsGate()
	default:
		return !dispatch.WasCopied()
	}
}
