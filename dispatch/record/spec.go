// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// New is the record of a hub TrainJob without a worker. attempt is the last attempt that the job has had, 0 if it has
// had none. The owner reference blocks a foreground deletion until the copy is gone.
func New(job *unstructured.Unstructured, attempt int32) *v1alpha1.Dispatch {
	return &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       job.GetNamespace(),
			Name:            job.GetName(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, job.GroupVersionKind())},
		},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: job.GetName(), UID: job.GetUID()}, Attempt: attempt,
		},
	}
}

// JobStays is true if the hub TrainJob of a Dispatch exists and is not being deleted. job is the TrainJob of the name,
// nil if there is none.
func JobStays(dispatch *v1alpha1.Dispatch, job *unstructured.Unstructured) bool {
	return job != nil && job.GetDeletionTimestamp() == nil && job.GetUID() == dispatch.Spec.TrainJob.UID
}

// Place gives the job a worker. chosen has the worker, the attempt and the demand. words say why this worker was
// chosen. Place removes all that an earlier attempt has left in the spec.
func Place(dispatch *v1alpha1.Dispatch, chosen v1alpha1.DispatchSpec, words string) {
	chosen.TrainJob, chosen.Eviction = dispatch.Spec.TrainJob, nil
	dispatch.Spec = chosen
	metav1.SetMetaDataAnnotation(&dispatch.ObjectMeta, v1alpha1.AnnotationDecision, words)
	if !IsGuarded(dispatch) {
		dispatch.Finalizers = append(dispatch.Finalizers, v1alpha1.FinalizerCopy)
	}
}

// Unplace makes the job wait, with this demand. It removes the worker, all that was decided with the worker, and the
// guard: the caller knows that the attempt has ended. It keeps the number of the attempt.
func Unplace(dispatch *v1alpha1.Dispatch, priority int32, podSets []v1alpha1.PodSet) {
	dispatch.Spec = v1alpha1.DispatchSpec{
		TrainJob: dispatch.Spec.TrainJob, Attempt: dispatch.Spec.Attempt, Priority: priority, PodSets: podSets,
	}
	delete(dispatch.Annotations, v1alpha1.AnnotationDecision)
	RemoveGuard(dispatch)
}

// Evict asks mirror to end the attempt.
func Evict(dispatch *v1alpha1.Dispatch, eviction v1alpha1.Eviction) {
	eviction.Message = Message(eviction.Message)
	dispatch.Spec.Eviction = &eviction
}

// adoptedDecision is the value of the annotation AnnotationDecision if the attempt comes from a copy that was found.
// Otherwise placement says there why it has chosen the worker.
const adoptedDecision = "adopted: the worker had the copy of this attempt, of which the hub had no record"

// Adopt records the attempt of a copy that was found. It is a later attempt than the hub knew.
func Adopt(dispatch *v1alpha1.Dispatch, found v1alpha1.DispatchSpec) {
	Place(dispatch, found, adoptedDecision)
	metav1.SetMetaDataAnnotation(&dispatch.ObjectMeta, v1alpha1.AnnotationAdopted, strconv.Itoa(int(found.Attempt)))
}

// IsAdopted is true if the current attempt comes from a copy that was found.
func IsAdopted(dispatch *v1alpha1.Dispatch) bool {
	return dispatch.Annotations[v1alpha1.AnnotationAdopted] == strconv.Itoa(int(dispatch.Spec.Attempt))
}

// IsGuarded is true if the finalizer keeps the Dispatch until its copy is gone.
func IsGuarded(dispatch *v1alpha1.Dispatch) bool {
	return slices.Contains(dispatch.Finalizers, v1alpha1.FinalizerCopy)
}

// RemoveGuard removes the finalizer, because the copy is known to be gone, or a Tombstone remembers it.
func RemoveGuard(dispatch *v1alpha1.Dispatch) {
	dispatch.Finalizers = slices.DeleteFunc(dispatch.Finalizers, func(finalizer string) bool {
		return finalizer == v1alpha1.FinalizerCopy
	})
}

// LastAttempt is the highest attempt that a job can have. A job that has had it is not placed any more.
const LastAttempt = math.MaxInt32

// NextAttempt is the attempt that follows, or LastAttempt if none does.
func NextAttempt(attempt int32) int32 {
	if attempt >= LastAttempt {
		return LastAttempt
	}
	return attempt + 1
}

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
