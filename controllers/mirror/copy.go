// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// labelKueueQueue on a copy hands its spec.suspend to the Kueue of the worker.
const labelKueueQueue = "kueue.x-k8s.io/queue-name"

// foreignAnnotations are about the hub's object and would be wrong about the copy. A copy that goes by a TTL before the hub has
// seen its end would be taken for lost.
var foreignAnnotations = []string{
	v1alpha1.AnnotationTTL,
	"kubectl.kubernetes.io/last-applied-configuration",
	"argocd.argoproj.io/tracking-id",
}

// newCopy builds the copy of job for the Dispatch's current attempt: the same spec with the built-in managedBy, the same
// labels and annotations, and ours. Nothing else of the metadata is copied: owners and finalizers belong to the hub.
func newCopy(job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, hubID string) *unstructured.Unstructured {
	copy := trainjobs.New()
	copy.SetNamespace(job.GetNamespace())
	copy.SetName(job.GetName())

	labels := maps.Clone(job.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelHub] = hubID
	labels[v1alpha1.LabelOriginUID] = string(job.GetUID())
	copy.SetLabels(labels)

	annotations := maps.Clone(job.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, key := range foreignAnnotations {
		delete(annotations, key)
	}
	annotations[v1alpha1.AnnotationAttempt] = strconv.Itoa(int(dispatch.Spec.Attempt))
	copy.SetAnnotations(annotations)

	spec, _, _ := unstructured.NestedMap(job.Object, "spec") // a deep copy
	if spec == nil {
		spec = map[string]any{}
	}
	spec["managedBy"] = v1alpha1.ManagedByBuiltIn
	copy.Object["spec"] = spec
	return copy
}

// updatedCopy returns the copy with what a user may change on a placed job brought over from the hub, or nil if there is nothing
// to bring: spec.suspend, and spec.runtimePatches once the copy is suspended. They do not go in one request, because a worker
// refuses patches while the job's pods are active, and with them the suspension that would end these pods.
//
// A copy in a queue of the worker's Kueue is resumed only if it was suspended from here.
func updatedCopy(job, copy *unstructured.Unstructured) *unstructured.Unstructured {
	suspend, suspended := trainjobs.Suspended(job), trainjobs.Suspended(copy)
	_, queued := copy.GetLabels()[labelKueueQueue]
	_, fromHere := copy.GetAnnotations()[v1alpha1.AnnotationSuspended]
	resume := !suspend && suspended && (fromHere || !queued)
	patch := suspended && (suspend || resume) && !equality.Semantic.DeepEqual(runtimePatches(job), runtimePatches(copy))
	switch {
	case suspend && !suspended:
		updated := copy.DeepCopy()
		setSuspend(updated, true)
		return updated
	case !resume && !patch:
		return nil
	}
	updated := copy.DeepCopy()
	if resume {
		setSuspend(updated, false)
	}
	if patch {
		spec := updated.Object["spec"].(map[string]any)
		if patches := runtimePatches(job); patches != nil {
			spec["runtimePatches"] = patches
		} else {
			delete(spec, "runtimePatches")
		}
	}
	return updated
}

// setSuspend sets spec.suspend, and notes that it is of our doing.
func setSuspend(copy *unstructured.Unstructured, suspend bool) {
	copy.Object["spec"].(map[string]any)["suspend"] = suspend
	annotations := copy.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if suspend {
		annotations[v1alpha1.AnnotationSuspended] = "true"
	} else {
		delete(annotations, v1alpha1.AnnotationSuspended)
	}
	copy.SetAnnotations(annotations)
}

// runtimePatches returns spec.runtimePatches without the times that the webhook of each cluster stamps on its own.
func runtimePatches(job *unstructured.Unstructured) []any {
	patches, _, _ := unstructured.NestedSlice(job.Object, "spec", "runtimePatches")
	for _, patch := range patches {
		if fields, ok := patch.(map[string]any); ok {
			delete(fields, "time")
		}
	}
	return patches
}

// shorten cuts a worker's words to what a status field takes.
func shorten(words string, limit int) string {
	words = strings.TrimSpace(words)
	if len(words) <= limit {
		return words
	}
	return strings.ToValidUTF8(words[:limit-3], "") + "..."
}
