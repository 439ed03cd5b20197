// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"maps"
	"strconv"

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

	labels, annotations := marks(dispatch, hubID)
	copy.SetLabels(merged(job.GetLabels(), labels))
	copy.SetAnnotations(merged(job.GetAnnotations(), annotations, foreignAnnotations...))
	copy.Object["spec"] = newSpec(job)
	if _, queued := copy.GetLabels()[labelKueueQueue]; !queued && trainjobs.Suspended(job) {
		setAnnotation(copy, v1alpha1.AnnotationSuspended, "true")
	}
	return copy
}

// newSpec is the spec that the copy of job is created with.
func newSpec(job *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(job.Object, "spec") // a deep copy
	if spec == nil {
		spec = map[string]any{}
	}
	spec["managedBy"] = v1alpha1.ManagedByBuiltIn
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

// merged is base without some keys and with others.
func merged(base, with map[string]string, without ...string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, base)
	for _, key := range without {
		delete(result, key)
	}
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

// updatedCopy returns the copy with what a user may change on a placed job brought over from the hub, or nil if there is nothing
// to bring: spec.suspend, and spec.runtimePatches once the copy is suspended. They do not go in one request, because a worker
// refuses patches while the job's pods are active, and with them the suspension that would end these pods.
//
// A copy in a queue of the worker's Kueue is resumed only if it was suspended from here. One that the worker's agent has stopped is let
// go on when the agent would let it. Whatever resumes a copy that is to be fenced brings the last challenge with it: a resumption that
// was on its way for too long is known by it, as a creation is.
func updatedCopy(job, copy *unstructured.Unstructured, may permission) *unstructured.Unstructured {
	suspend, suspended := trainjobs.Suspended(job), trainjobs.Suspended(copy)
	_, queued := copy.GetLabels()[labelKueueQueue]
	_, fromHere := copy.GetAnnotations()[v1alpha1.AnnotationSuspended]
	_, stopped := copy.GetAnnotations()[v1alpha1.AnnotationFenced]
	release := stopped && may.ok
	resume := !suspend && suspended && (fromHere || !queued) && (!stopped || release)
	patch := suspended && (suspend || resume) && !equality.Semantic.DeepEqual(runtimePatches(job), runtimePatches(copy))
	stop := suspend && !suspended
	if !stop && !resume && !patch && !release {
		return nil
	}
	updated := copy.DeepCopy()
	if stop || resume || release && suspend {
		setSuspend(updated, suspend)
	}
	if patch {
		spec := updated.Object["spec"].(map[string]any)
		if patches := runtimePatches(job); patches != nil {
			spec["runtimePatches"] = patches
		} else {
			delete(spec, "runtimePatches")
		}
	}
	if release {
		setAnnotation(updated, v1alpha1.AnnotationFenced, "")
	}
	if may.fenced && may.challenge != "" && (resume || release) {
		setAnnotation(updated, v1alpha1.AnnotationChallenge, may.challenge)
	}
	return updated
}

// isSuspendedByOthers is true if spec.suspend of the copy is not as it was left, and neither the worker's Kueue nor its agent did it.
func isSuspendedByOthers(job, copy *unstructured.Unstructured) bool {
	_, queued := copy.GetLabels()[labelKueueQueue]
	_, fromHere := copy.GetAnnotations()[v1alpha1.AnnotationSuspended]
	_, stopped := copy.GetAnnotations()[v1alpha1.AnnotationFenced]
	suspend, suspended := trainjobs.Suspended(job), trainjobs.Suspended(copy)
	return !stopped && suspend != suspended && fromHere == suspend && (suspend || !queued)
}

// setSuspend sets spec.suspend, and notes that it is of our doing.
func setSuspend(copy *unstructured.Unstructured, suspend bool) {
	copy.Object["spec"].(map[string]any)["suspend"] = suspend
	value := ""
	if suspend {
		value = "true"
	}
	setAnnotation(copy, v1alpha1.AnnotationSuspended, value)
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
