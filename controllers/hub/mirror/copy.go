// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// newCopy builds the copy of job for the Dispatch's current attempt: the same spec with the built-in managedBy, the
// same labels and annotations but those that stay on the hub, and ours. Nothing else of the metadata is copied: owners
// and finalizers belong to the hub.
func newCopy(job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, hubID string) *unstructured.Unstructured {
	copy := trainjobs.New()
	copy.SetNamespace(job.GetNamespace())
	copy.SetName(job.GetName())

	labels, annotations := marks(dispatch, hubID)
	annotations[v1alpha1.AnnotationSource] = sourceOf(job)
	copy.SetLabels(merged(carried(job.GetLabels()), labels))
	copy.SetAnnotations(merged(carried(job.GetAnnotations()), annotations))
	copy.Object["spec"] = newSpec(job)
	return copy
}

// sourceOf names the job and the generation of its spec.
func sourceOf(job *unstructured.Unstructured) string {
	return fmt.Sprintf("%s.%d", job.GetUID(), job.GetGeneration())
}

// newSpec is the spec that the copy of job is created with. The patch that the hub's Kueue has made stays on the hub: it speaks of the
// hub's queues and flavors, and the worker's Kueue makes one of its own under the same key.
func newSpec(job *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(job.Object, "spec") // a deep copy
	if spec == nil {
		spec = map[string]any{}
	}
	spec["managedBy"] = v1alpha1.ManagedByBuiltIn
	if patches, ok := spec[fieldPatches].([]any); ok {
		patches = slices.DeleteFunc(patches, func(patch any) bool { return managerOf(patch) == kueueManager })
		if spec[fieldPatches] = patches; len(patches) == 0 {
			delete(spec, fieldPatches)
		}
	}
	return spec
}

// marks are the labels and annotations by which a copy is recognised, and its agent knows what may be done with it.
func marks(dispatch *v1alpha1.Dispatch, hubID string) (labels, annotations map[string]string) {
	labels = map[string]string{v1alpha1.LabelHub: hubID, v1alpha1.LabelOriginUID: string(dispatch.Spec.TrainJob.UID)}
	annotations = map[string]string{v1alpha1.AnnotationAttempt: strconv.Itoa(int(dispatch.Spec.Attempt))}
	if dispatch.Spec.Failover != "" {
		annotations[v1alpha1.AnnotationFailover] = string(dispatch.Spec.Failover)
	}
	return labels, annotations
}

// merged is base with others.
func merged(base, with map[string]string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, base)
	maps.Copy(result, with)
	return result
}

// permission is what the worker's execution lease says about a copy.
type permission struct {
	// fenced is true if the copy is to be stopped when the agent hears nothing from the hub. For others the rest says nothing.
	fenced bool
	// challenge that was answered last, empty if none was.
	challenge string
	// ok is true if the agent is alive and lets such copies run.
	ok bool
}

// setAnnotation sets an annotation, or removes it if value is empty.
func setAnnotation(copy *unstructured.Unstructured, key, value string) {
	annotations := copy.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[key] = value; value == "" {
		delete(annotations, key)
	}
	copy.SetAnnotations(annotations)
}
