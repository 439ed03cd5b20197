// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TopologyManager is the key of the entry in a copy's spec.runtimePatches that keeps pods in the domain that was chosen
// for them.
const TopologyManager = v1alpha1.KeyPrefix + "topology"

// DomainPatch returns the entry of TopologyManager: the pods of the PodSets that select a domain select it. nil: none do.
func DomainPatch(domain v1alpha1.Domain, podSets []v1alpha1.PodSet) *trainer.RuntimePatch {
	var jobs []trainer.ReplicatedJobPatch
	for i := range podSets {
		if podSets[i].NodeSelector[domain.Label] == domain.Value {
			jobs = append(jobs, OnNodes(podSets[i].Name, map[string]string{domain.Label: domain.Value}, nil))
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return patchBy(TopologyManager, jobs)
}

// DomainOf returns the domain in which the entry of TopologyManager keeps pods of a copy, and the replicated jobs whose
// pods they are. nil: there is no such entry.
func DomainOf(copy *unstructured.Unstructured) (domain *v1alpha1.Domain, jobs []string) {
	for _, job := range PatchedJobs(topologyEntry(copy)) {
		if t := job.Template; t == nil || t.Spec == nil || t.Spec.Template == nil || t.Spec.Template.Spec == nil {
			continue
		}
		for label, value := range job.Template.Spec.Template.Spec.NodeSelector { // There is one.
			domain = &v1alpha1.Domain{Label: label, Value: value}
		}
		jobs = append(jobs, job.Name)
	}
	if domain == nil || domain.Value == "" {
		return nil, nil
	}
	return domain, jobs
}

// topologyEntry returns the entry of TopologyManager of a copy, translated or not.
func topologyEntry(copy *unstructured.Unstructured) (entry trainer.RuntimePatch) {
	patches, _ := Spec(copy)[translate.Patches].([]any)
	patches = slices.Clip(patches) // The cache owns it.
	for _, own := range translatedPatches(copy) {
		patches = append(patches, own)
	}
	for _, patch := range patches {
		if ManagerOf(patch) != TopologyManager {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(patch.(map[string]any), &entry); err != nil {
			return trainer.RuntimePatch{}
		}
		return entry
	}
	return entry
}
