// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
)

// newCopy builds the copy of job for the Dispatch's current attempt: the spec in the form that the worker knows, our labels
// and annotations, and the job's labels and annotations that do not stay on the hub. Owners and finalizers belong to the
// hub. policy is the job's, nil if there is none. unsent says which labels and annotations an admin keeps on the hub, nil
// for no more.
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
	copy.Object["spec"] = trainjobs.CopySpec(job, &dispatch.Spec, flavorsOf(job, dispatch, policy))
	if into := dispatch.Spec.TranslatedInto; into != "" {
		trainjobs.Translate(copy, into)
	}
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

// flavorsOf returns the entry with the flavors of the hub's Kueue that a new copy gets, nil for none.
func flavorsOf(job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, policy *v1alpha1.DispatchPolicy) map[string]any {
	if policy.Rules().HubFlavors != v1alpha1.HubFlavorsPropagate {
		return nil
	}
	return trainjobs.FlavorsEntry(job, dispatch.Spec.PodSets)
}

// newSpec is the spec that a new copy of a job would have where copy is, with the flavors with which copy was made: they
// are in a translated copy, and in others they are not compared.
func newSpec(job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, copy *unstructured.Unstructured) map[string]any {
	into := dispatch.Spec.TranslatedInto
	if into == "" {
		return trainjobs.CopySpec(job, &dispatch.Spec, nil)
	}
	wanted := trainjobs.New()
	wanted.Object["spec"] = trainjobs.CopySpec(job, &dispatch.Spec, trainjobs.TranslatedFlavors(copy))
	trainjobs.Translate(wanted, into)
	return specOf(wanted)
}

// marks are the labels and annotations by which a copy is recognised, and its agent knows what may be done with it.
func marks(dispatch *v1alpha1.Dispatch, hubID string) (labels, annotations map[string]string) {
	labels = map[string]string{v1alpha1.LabelHub: hubID, v1alpha1.LabelOriginUID: string(dispatch.Spec.TrainJob.UID)}
	annotations = map[string]string{v1alpha1.AnnotationAttempt: strconv.Itoa(int(dispatch.Spec.Attempt))}
	if len(dispatch.Spec.Dependencies) > 0 {
		annotations[v1alpha1.AnnotationDependencies] = v1alpha1.DependencyNames(dispatch.Spec.Dependencies)
	}
	if into := dispatch.Spec.TranslatedInto; into != "" {
		annotations[v1alpha1.AnnotationTranslatedInto] = string(into)
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
