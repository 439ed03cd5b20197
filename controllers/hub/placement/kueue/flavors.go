// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"fmt"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
)

// Flavors are the flavors that Kueue has assigned to a job.
type Flavors struct {
	assigned []kueues.Assignment
	find     func(name string) *kueues.ResourceFlavor
}

// Entry returns what Kueue is about to write into the job's runtimePatches about nodes, nil for nothing. The error
// names a ResourceFlavor that is not known.
func (f *Flavors) Entry() (*trainer.RuntimePatch, error) {
	var jobs []trainer.ReplicatedJobPatch
	for _, a := range f.assigned {
		labels, tolerations := map[string]string{}, []corev1.Toleration(nil)
		for _, name := range slices.Compact(slices.Sorted(maps.Values(a.Flavors))) {
			found := f.find(name)
			if found == nil {
				return nil, fmt.Errorf("the hub's Kueue has assigned ResourceFlavor %q, and the hub has none of this name", name)
			}
			maps.Copy(labels, found.Spec.NodeLabels)
			tolerations = append(tolerations, found.Spec.Tolerations...)
		}
		jobs = append(jobs, trainjobs.OnNodes(a.Name, labels, tolerations))
	}
	return trainjobs.HubFlavors(jobs), nil
}
