// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

const (
	gpu          corev1.ResourceName = "nvidia.com/gpu"
	cpu                              = corev1.ResourceCPU
	productLabel                     = "nvidia.com/gpu.product"
)

// podSetsOf is the demand of a job as package dispatch takes it.
func podSetsOf(job *stream.Job) []v1alpha1.PodSet {
	var sets []v1alpha1.PodSet
	for i := range job.Pods {
		p := &job.Pods[i]
		set := v1alpha1.PodSet{
			Name: fmt.Sprint("node-", i), Role: v1alpha1.RoleTrainer, Count: int32(p.Count), Requests: corev1.ResourceList{},
		}
		if p.GPUs > 0 {
			set.Requests[gpu] = *resource.NewQuantity(int64(p.GPUs), resource.DecimalSI)
		}
		if p.Millicores > 0 {
			set.Requests[cpu] = *resource.NewMilliQuantity(int64(p.Millicores), resource.DecimalSI)
		}
		switch len(p.Products) {
		case 0:
		case 1:
			set.NodeSelector = map[string]string{productLabel: p.Products[0]}
		default:
			set.NodeAffinity = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: productLabel, Operator: corev1.NodeSelectorOpIn, Values: p.Products,
				}},
			}}}
		}
		sets = append(sets, set)
	}
	return sets
}

// nodesOf is what nodes have free as package dispatch takes it.
func nodesOf(levels func(visit func(spec *world.GroupSpec, room world.Room, nodes int))) *dispatch.Nodes {
	var groups []dispatch.NodeGroup
	levels(func(spec *world.GroupSpec, room world.Room, nodes int) {
		groups = append(groups, dispatch.NodeGroup{
			Labels: map[string]string{productLabel: spec.Product}, Count: nodes,
			Free: dispatch.Resources{gpu: int64(room.GPUs), cpu: int64(room.Millicores)},
		})
	})
	return dispatch.NewNodes(groups)
}
