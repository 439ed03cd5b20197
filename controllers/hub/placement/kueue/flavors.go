// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"fmt"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// assignment has the flavors of a PodSet, sorted. The PodSet has the name of its replicated job.
type assignment struct {
	podSet  string
	flavors []string
}

func (a assignment) equal(other assignment) bool {
	return a.podSet == other.podSet && slices.Equal(a.flavors, other.flavors)
}

// assignments reads status.admission of a Workload.
func assignments(workload *unstructured.Unstructured) []assignment {
	list, _, _ := unstructured.NestedFieldNoCopy(workload.Object, "status", "admission", "podSetAssignments")
	items, _ := list.([]any)
	var all []assignment
	for _, item := range items {
		fields, _ := item.(map[string]any)
		name, _ := fields["name"].(string)
		ofResources, _, _ := unstructured.NestedStringMap(fields, "flavors")
		flavors := slices.Compact(slices.Sorted(maps.Values(ofResources)))
		all = append(all, assignment{podSet: name, flavors: flavors})
	}
	return all
}

// flavor is what the cache keeps of a ResourceFlavor.
type flavor struct {
	metav1.ObjectMeta
	Spec struct {
		NodeLabels  map[string]string   `json:"nodeLabels"`
		Tolerations []corev1.Toleration `json:"tolerations"`
	}
}

func (f *flavor) equal(other *flavor) bool { return equality.Semantic.DeepEqual(f.Spec, other.Spec) }

// stripFlavor is the cache's transform of ResourceFlavors.
func stripFlavor(in any) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	stripped := &flavor{ObjectMeta: identityOf(object)}
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &stripped.Spec); err != nil {
		return nil, fmt.Errorf("convert ResourceFlavor %q: %w", object.GetName(), err)
	}
	return stripped, nil
}

// Flavors are the flavors that Kueue has assigned to a job.
type Flavors struct {
	assigned []assignment
	find     func(name string) *flavor
}

// Entry returns what Kueue is about to write into the job's runtimePatches about nodes, nil for nothing. The error
// names a ResourceFlavor that is not known.
func (f *Flavors) Entry() (*trainer.RuntimePatch, error) {
	var jobs []trainer.ReplicatedJobPatch
	for _, a := range f.assigned {
		labels, tolerations := map[string]string{}, []corev1.Toleration(nil)
		for _, name := range a.flavors {
			found := f.find(name)
			if found == nil {
				return nil, fmt.Errorf("the hub's Kueue has assigned ResourceFlavor %q, and the hub has none of this name", name)
			}
			maps.Copy(labels, found.Spec.NodeLabels)
			tolerations = append(tolerations, found.Spec.Tolerations...)
		}
		jobs = append(jobs, trainjobs.OnNodes(a.podSet, labels, tolerations))
	}
	return trainjobs.HubFlavors(jobs), nil
}
