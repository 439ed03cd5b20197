// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	typed, err := Typed(copy)
	if err != nil {
		return nil, nil
	}
	at := slices.IndexFunc(typed.Spec.RuntimePatches, func(patch trainer.RuntimePatch) bool { return patch.Manager == TopologyManager })
	if at < 0 {
		return nil, nil
	}
	for _, job := range PatchedJobs(typed.Spec.RuntimePatches[at]) {
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
