// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Strip keeps in a cache what is still asked of a TrainJob. It is a transform of informers, and changes in place what it is given.
//
// A TrainJob that has ended stays for as long as its user likes, and most that a hub has are such: of these the spec goes, but for whose
// they are. Of any TrainJob what no one reads goes: managed fields, and the copy of the object that kubectl apply leaves in an annotation.
// What stays has its values in common with other TrainJobs, and must not be changed.
func Strip(in any) (any, error) {
	job, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil // What a watch has missed the deletion of comes wrapped.
	}
	StripMetadata(job)
	if Terminal(job) != nil {
		stripSpec(job)
	}
	job.Object = common.of(job.Object)
	return job, nil
}

// StripOf is Strip for a cluster on which only the TrainJobs whose spec.managedBy is managedBy are worked on. Of those of others it keeps
// the metadata, and whose they are.
func StripOf(managedBy string) func(any) (any, error) {
	return func(in any) (any, error) {
		if job, ok := in.(*unstructured.Unstructured); ok && ManagedBy(job) != managedBy {
			delete(job.Object, "status")
			stripSpec(job)
		}
		return Strip(in)
	}
}

// StripMetadata keeps labels and annotations, but not the copy of the whole object that kubectl apply leaves in one of them.
func StripMetadata(object metav1.Object) {
	if object.GetManagedFields() != nil { // A list goes through here twice. To delete what is not there is a write too.
		object.SetManagedFields(nil)
	}
	if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		object.SetAnnotations(annotations)
	}
}

// stripSpec keeps of a spec what says whose job it is, and whether it may run.
func stripSpec(job *unstructured.Unstructured) {
	spec, _ := job.Object["spec"].(map[string]any)
	job.Object["spec"] = PickFields(spec, "managedBy", "suspend")
}

// PickFields returns those of some fields that are there, in a map of its own, which is never nil.
func PickFields(fields map[string]any, keys ...string) map[string]any {
	picked := make(map[string]any, len(keys))
	for _, key := range keys {
		if value, ok := fields[key]; ok {
			picked[key] = value
		}
	}
	return picked
}
