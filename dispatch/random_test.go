// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// random makes cases that are small enough for a full search, and so tight that about half of them fit.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 0))} }

// nodes returns at most most nodes, one per group, with a few GPUs and CPUs. Some have no GPUs, some have taints.
func (r random) nodes(most int) []NodeGroup {
	nodes := make([]NodeGroup, 1+r.IntN(most))
	for i := range nodes {
		free := Resources{corev1.ResourceCPU: int64(1000 * r.IntN(9)), corev1.ResourcePods: int64(1 + r.IntN(8))}
		if r.IntN(5) > 0 {
			free[gpu] = int64(r.IntN(9))
		}
		nodes[i] = NodeGroup{
			Labels: map[string]string{"zone": []string{"a", "b"}[r.IntN(2)], corev1.LabelHostname: fmt.Sprint("node-", i)},
			Free:   free,
			Count:  1,
		}
		if r.IntN(5) == 0 {
			nodes[i].Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	return nodes
}

// podSets returns kinds of pods, with up to three pods each.
func (r random) podSets(kinds int) []v1alpha1.PodSet {
	sets := make([]v1alpha1.PodSet, kinds)
	for i := range sets {
		sets[i] = v1alpha1.PodSet{
			Name: fmt.Sprint("set-", i), Role: v1alpha1.RoleTrainer, Count: int32(1 + r.IntN(3)),
			Requests: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewQuantity(int64(r.IntN(5)), resource.DecimalSI),
				gpu:                *resource.NewQuantity(int64(r.IntN(6)), resource.DecimalSI),
			},
		}
		if r.IntN(4) == 0 {
			sets[i].NodeSelector = map[string]string{"zone": []string{"a", "b"}[r.IntN(2)]}
		}
		if r.IntN(3) == 0 {
			sets[i].Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		}
	}
	return sets
}

// exhaustive says whether every pod has a place. It tries all places.
func exhaustive(podSets []v1alpha1.PodSet, nodes []NodeGroup) bool {
	byPhase := [2][]v1alpha1.PodSet{}
	for _, set := range podSets {
		at := PhaseOf(&set)
		byPhase[at] = append(byPhase[at], slices.Repeat([]v1alpha1.PodSet{set}, int(set.Count))...)
	}
	free := make([]Resources, len(nodes))
	for i := range nodes {
		free[i] = Resources{}
		free[i].Add(nodes[i].Free)
	}
	return assign(byPhase[0], nodes, free) && assign(byPhase[1], nodes, free)
}

func assign(pods []v1alpha1.PodSet, nodes []NodeGroup, free []Resources) bool {
	if len(pods) == 0 {
		return true
	}
	need := FromList(pods[0].Requests)
	need[corev1.ResourcePods] = 1
	for i := range nodes {
		if !allows(&pods[0], &nodes[i]) || !covers(free[i], need) {
			continue
		}
		free[i].Sub(need)
		ok := assign(pods[1:], nodes, free)
		free[i].Add(need)
		if ok {
			return true
		}
	}
	return false
}

func covers(free, need Resources) bool {
	for name, amount := range need {
		if amount > 0 && free[name] < amount {
			return false
		}
	}
	return true
}

// allows checks the selectors and taints of the cases as the scheduler does.
func allows(set *v1alpha1.PodSet, node *NodeGroup) bool {
	for key, value := range set.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	return len(node.Taints) == 0 || len(set.Tolerations) > 0
}
