// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// New is the record of a hub TrainJob. Its owner reference blocks a foreground deletion until the copy is gone.
func New(job *unstructured.Unstructured) *v1alpha1.Dispatch {
	return &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       job.GetNamespace(),
			Name:            job.GetName(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, job.GroupVersionKind())},
		},
		Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: job.GetName(), UID: job.GetUID()}},
	}
}

// Evict asks mirror to end the attempt.
func Evict(dispatch *v1alpha1.Dispatch, reason v1alpha1.EvictionReason, message string) {
	dispatch.Spec.Eviction = &v1alpha1.Eviction{Reason: reason, Message: Message(message)}
}

// AdoptedDecision is the value of the annotation AnnotationDecision if the attempt comes from a copy that was found.
// Otherwise placement says there why it has chosen the worker.
const AdoptedDecision = "adopted: the worker had the copy of this attempt, of which the hub had no record"

// Adopt records the attempt of a copy that was found. It is a later attempt than the hub knew.
func Adopt(dispatch *v1alpha1.Dispatch, found v1alpha1.DispatchSpec) {
	spec := &dispatch.Spec
	spec.Cluster, spec.ClusterID, spec.Attempt = found.Cluster, found.ClusterID, found.Attempt
	spec.Failover, spec.LocalQueue, spec.Eviction = found.Failover, found.LocalQueue, nil
	metav1.SetMetaDataAnnotation(&dispatch.ObjectMeta, v1alpha1.AnnotationDecision, AdoptedDecision)
	if !IsGuarded(dispatch) {
		dispatch.Finalizers = append(dispatch.Finalizers, v1alpha1.FinalizerCopy)
	}
}

// IsGuarded is true if the Dispatch cannot go before its copy.
func IsGuarded(dispatch *v1alpha1.Dispatch) bool {
	return slices.Contains(dispatch.Finalizers, v1alpha1.FinalizerCopy)
}

// Release takes the guard off: the copy is known to be gone, or a Tombstone remembers it.
func Release(dispatch *v1alpha1.Dispatch) {
	dispatch.Finalizers = slices.DeleteFunc(dispatch.Finalizers, func(finalizer string) bool {
		return finalizer == v1alpha1.FinalizerCopy
	})
}
