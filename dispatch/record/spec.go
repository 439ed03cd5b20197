// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"strconv"

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
