// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// IsMoving is true from the eviction of a job from a drained worker until its next copy exists. A job that somebody
// suspends meanwhile is not moving any more, nor is a job that Kueue has taken back or dispatches itself.
func IsMoving(dispatch *v1alpha1.Dispatch) bool {
	state := StateOf(dispatch)
	if !states[state].mayMove {
		return false
	}
	history := dispatch.Status.History
	switch {
	case dispatch.Spec.Eviction != nil:
		return EndingOf(dispatch.Spec.Eviction.Reason).Moves
	case len(history) == 0 || !EndingOf(history[len(history)-1].Outcome).Moves:
		return false
	case state == Waiting:
		placed := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchPlaced)
		return placed == nil || placed.Status != metav1.ConditionFalse || !v1alpha1.ReasonKindOf(placed.Reason).KeepsOffList()
	default:
		return !dispatch.WasCopied()
	}
}

// MovePatience is for how long a job that is moving holds up the moves of others by its policy's maxConcurrentMoves,
// counted from MovingSince. Its owner decides how long its pods take to stop, and on which workers it may run then.
const MovePatience = 10 * time.Minute

// MovingSince is since when a job that is moving has come no further, as its Dispatch says: since the deletion of its
// copy began, or since its attempt ended. It is zero if the Dispatch does not say.
func MovingSince(dispatch *v1alpha1.Dispatch) time.Time {
	if dispatch.Spec.Eviction == nil || dispatch.AttemptEnded() {
		if n := len(dispatch.Status.History); n > 0 {
			return dispatch.Status.History[n-1].To.Time
		}
		return time.Time{}
	}
	evicting := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchEvicting)
	if evicting == nil || evicting.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return evicting.LastTransitionTime.Time
}
