// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Strip keeps the still needed fields of a cached TrainJob. It is a transform of informers and changes its argument.
//
// Most TrainJobs on a hub have ended. Of these Strip drops the spec, except managedBy and suspend, and of every
// TrainJob the managed fields and kubectl's annotation. It keeps a large spec as JSON: read it with Spec. The result shares values with others, so do not change it.
func Strip(in any) (any, error) {
	job, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil // After a missed deletion, the last state comes wrapped.
	}
	StripMetadata(job)
	if Terminal(job) != nil {
		stripSpec(job)
	}
	pack(job)
	job.Object = common.of(job.Object)
	return job, nil
}

// StripOf is Strip for TrainJobs with this spec.managedBy. Of other TrainJobs it keeps the metadata and spec.managedBy.
func StripOf(managedBy string) func(any) (any, error) {
	return func(in any) (any, error) {
		if job, ok := in.(*unstructured.Unstructured); ok && ManagedBy(job) != managedBy {
			delete(job.Object, "status")
			stripSpec(job)
		}
		return Strip(in)
	}
}

// StripMetadata drops managed fields, and the copy of the whole object that kubectl apply leaves in an annotation.
func StripMetadata(object metav1.Object) {
	if object.GetManagedFields() != nil { // Lists call this twice. Setting nil again would be a write to a shared object.
		object.SetManagedFields(nil)
	}
	if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		object.SetAnnotations(annotations)
	}
}

// stripSpec keeps the fields of a spec that say who manages the job and whether it may run.
func stripSpec(job *unstructured.Unstructured) {
	spec, _ := job.Object["spec"].(map[string]any)
	job.Object["spec"] = PickFields(spec, "managedBy", "suspend")
}

// PickFields returns the existing ones of these fields in a new map, which is never nil.
func PickFields(fields map[string]any, keys ...string) map[string]any {
	picked := make(map[string]any, len(keys))
	for _, key := range keys {
		if value, ok := fields[key]; ok {
			picked[key] = value
		}
	}
	return picked
}

// PickItems is PickFields for each object of a list. It is never nil.
func PickItems(list any, keys ...string) []any {
	items, _ := list.([]any)
	picked := make([]any, 0, len(items))
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok {
			picked = append(picked, PickFields(fields, keys...))
		}
	}
	return picked
}
