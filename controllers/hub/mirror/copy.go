// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
)

// newCopy builds the copy of job for the Dispatch's current attempt: the spec by newSpec, our labels and annotations, and
// the job's labels and annotations that do not stay on the hub. Owners and finalizers belong to the hub. policy is the
// job's, nil if there is none. unsent says which labels and annotations an admin keeps on the hub, nil for no more.
func newCopy(
	job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, policy *v1alpha1.DispatchPolicy, hubID string,
	unsent func(key string) bool,
) *unstructured.Unstructured {
	copy := trainjobs.New()
	copy.SetNamespace(job.GetNamespace())
	copy.SetName(job.GetName())

	labels, annotations := marks(dispatch, hubID)
	annotations[v1alpha1.AnnotationSource] = sourceOf(job)
	own := inQueue(copies.Carried(job.GetLabels(), unsent), dispatch.Spec.LocalQueue)
	if !policy.AllowsWorkloadPriorityClass(own[v1alpha1.LabelWorkloadPriorityClass]) { // The job has got it since it was placed.
		delete(own, v1alpha1.LabelWorkloadPriorityClass)
	}
	copy.SetLabels(merged(own, labels))
	copy.SetAnnotations(merged(copies.Carried(job.GetAnnotations(), unsent), annotations))
	copy.Object["spec"] = newSpec(job, dispatch, policy.Rules().HubFlavors == v1alpha1.HubFlavorsPropagate)
	return copy
}

// inQueue returns the labels of a copy. name is the LocalQueue of the worker that gets the copy. An empty name: no
// queue gets the copy, so the label of its WorkloadPriorityClass is removed too. Nil: the labels stay.
func inQueue(labels map[string]string, name *string) map[string]string {
	switch {
	case name == nil:
	case *name == "":
		delete(labels, v1alpha1.LabelLocalQueue)
		delete(labels, v1alpha1.LabelWorkloadPriorityClass)
	default:
		labels[v1alpha1.LabelLocalQueue] = *name
	}
	return labels
}

// sourceOf names the job and the generation of its spec.
func sourceOf(job *unstructured.Unstructured) string {
	return fmt.Sprintf("%s.%d", job.GetUID(), job.GetGeneration())
}

// newSpec is the spec that the copy of job is created with. The entry of the hub's Kueue stays on the hub: it names the
// hub's queues, and the worker's Kueue makes its own entry under the same key. With flavors, the copy gets what that
// entry says about nodes, beside what the podSets of its Dispatch tolerate without it. Pods that belong together select
// the domain that the Dispatch names. The process is told what the Dispatch says about checkpoints.
func newSpec(job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, flavors bool) map[string]any {
	spec := runtime.DeepCopyJSON(trainjobs.Spec(job))
	if spec == nil {
		spec = map[string]any{}
	}
	spec["managedBy"] = v1alpha1.ManagedByBuiltIn
	patches, _ := spec[fieldPatches].([]any)
	patches = sentPatches(patches, flavors, dispatch.Spec.PodSets)
	for _, patch := range ownPatches(dispatch) {
		patches = append(patches, patch)
	}
	trainjobs.AddCheckpointEnv(spec, &dispatch.Spec)
	if spec[fieldPatches] = patches; len(patches) == 0 {
		delete(spec, fieldPatches)
	}
	return spec
}

// ownPatches returns the entries that keep pods in the domain of a Dispatch, and that give pods the grace period of their
// policy.
func ownPatches(dispatch *v1alpha1.Dispatch) []map[string]any {
	var typed []*trainer.RuntimePatch
	if domain := dispatch.Spec.Domain; domain != nil {
		typed = append(typed, trainjobs.DomainPatch(*domain, dispatch.Spec.PodSets))
	}
	if checkpoint := dispatch.Spec.Checkpoint; checkpoint != nil {
		typed = append(typed, trainjobs.GracePatch(checkpoint.Grace))
	}
	var patches []map[string]any
	for _, patch := range typed {
		if patch == nil {
			continue
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(patch)
		if err == nil { // It is made of strings and numbers.
			patches = append(patches, fields)
		}
	}
	return patches
}

// sentPatches are the runtimePatches of a job that its copy gets.
func sentPatches(patches []any, flavors bool, podSets []v1alpha1.PodSet) []any {
	kueue := slices.IndexFunc(patches, func(patch any) bool { return managerOf(patch) == trainjobs.KueueManager })
	var nodes map[string]any
	if flavors && kueue >= 0 {
		nodes = nodesOfFlavors(patches[kueue], podSets)
	}
	sent := slices.DeleteFunc(patches, func(patch any) bool { return trainjobs.StaysOnHub(managerOf(patch)) })
	if nodes != nil {
		sent = append(sent, nodes)
	}
	return sent
}

// nodesOfFlavors returns what an entry of Kueue says about nodes, nil for nothing. The tolerations of an entry replace
// those of the runtime and of the user. So the entry has these too, from the PodSets, which were derived with them.
func nodesOfFlavors(patch any, podSets []v1alpha1.PodSet) map[string]any {
	fields, _ := patch.(map[string]any)
	var entry trainer.RuntimePatch
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &entry); err != nil {
		return nil // Nor could the demand be derived.
	}
	flavors := trainjobs.FlavorsOf(entry)
	if flavors == nil {
		return nil
	}
	for _, patched := range trainjobs.PatchedJobs(*flavors) {
		pod := patched.Template.Spec.Template.Spec
		at := slices.IndexFunc(podSets, func(set v1alpha1.PodSet) bool { return set.Name == patched.Name })
		if len(pod.Tolerations) > 0 && at >= 0 {
			pod.Tolerations = trainjobs.WithTolerations(podSets[at].Tolerations, pod.Tolerations)
		}
	}
	nodes, err := runtime.DefaultUnstructuredConverter.ToUnstructured(flavors)
	if err != nil {
		return nil
	}
	return nodes
}

// marks are the labels and annotations by which a copy is recognised, and its agent knows what may be done with it.
func marks(dispatch *v1alpha1.Dispatch, hubID string) (labels, annotations map[string]string) {
	labels = map[string]string{v1alpha1.LabelHub: hubID, v1alpha1.LabelOriginUID: string(dispatch.Spec.TrainJob.UID)}
	annotations = map[string]string{v1alpha1.AnnotationAttempt: strconv.Itoa(int(dispatch.Spec.Attempt))}
	if len(dispatch.Spec.Dependencies) > 0 {
		annotations[v1alpha1.AnnotationDependencies] = v1alpha1.DependencyNames(dispatch.Spec.Dependencies)
	}
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

// specOf is the spec itself, or a copy of a large one that comes from a cache.
func specOf(job *unstructured.Unstructured) map[string]any { return trainjobs.Spec(job) }

// reservedKeys are the names under trainyard.dev/ on a hub TrainJob that are not for users, sorted.
func reservedKeys(job *unstructured.Unstructured) []string {
	var names []string
	for key := range job.GetLabels() {
		if strings.HasPrefix(key, v1alpha1.KeyPrefix) {
			names = append(names, "label "+key)
		}
	}
	for key := range job.GetAnnotations() {
		if strings.HasPrefix(key, v1alpha1.KeyPrefix) && !slices.Contains(v1alpha1.UserAnnotations(), key) {
			names = append(names, "annotation "+key)
		}
	}
	slices.Sort(names)
	return names
}
