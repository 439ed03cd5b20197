// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestNewNodesGroups(t *testing.T) {
	since := metav1.Unix(1, 0)
	cases := map[string]struct {
		reason string
		nodes  []NodeGroup
		want   []NodeGroup
	}{
		"Alike": {
			reason: "host name, order of taints, their times and preferences make no difference",
			nodes: []NodeGroup{
				{
					Labels: map[string]string{"gpu": "a100", corev1.LabelHostname: "1"}, Free: Resources{gpu: 8}, Count: 1,
					Taints: []corev1.Taint{taint("a", "", corev1.TaintEffectNoSchedule), taint("b", "", corev1.TaintEffectNoExecute)},
				},
				{
					Labels: map[string]string{"gpu": "a100", corev1.LabelHostname: "2"}, Free: Resources{gpu: 8}, Count: 2,
					Taints: []corev1.Taint{
						{Key: "b", Effect: corev1.TaintEffectNoExecute, TimeAdded: &since}, taint("a", "", corev1.TaintEffectNoSchedule),
						taint("c", "", corev1.TaintEffectPreferNoSchedule),
					},
				},
			},
			want: []NodeGroup{{
				Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 8}, Count: 3,
				Taints: []corev1.Taint{taint("a", "", corev1.TaintEffectNoSchedule), taint("b", "", corev1.TaintEffectNoExecute)},
			}},
		},
		"Different": {
			reason: "labels and free amounts make a difference; a node without a resource is not one with none of it free",
			nodes: []NodeGroup{
				{Labels: map[string]string{"gpu": "h100"}, Free: Resources{gpu: 8}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 8}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: -1}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Count: 1},
			},
			want: []NodeGroup{
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 0}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 8}, Count: 1},
				{Labels: map[string]string{"gpu": "h100"}, Free: Resources{gpu: 8}, Count: 1},
			},
		},
		"Empty": {
			reason: "a group without nodes is none",
			nodes:  []NodeGroup{{Free: Resources{gpu: 8}}},
			want:   []NodeGroup{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, tc.want, NewNodes(tc.nodes).Groups(), fmt.Sprintf("%s\nGroups", tc.reason))
		})
	}
}

func TestNoNodes(t *testing.T) {
	for name, n := range map[string]*Nodes{"Nil": nil, "Zero": {}, "None": NewNodes(nil)} {
		podSets := []v1alpha1.PodSet{podSet(1, 1), podSet(1, 2, named("other", ""))}
		if n.Fit(podSets) == nil || n.Count() != 0 || n.Free(gpu) != 0 || len(n.Groups()) != 0 || n.Reserve(podSets).Count() != 0 {
			t.Errorf("%s: no nodes are not empty", name)
		}
	}
}

func TestReserve(t *testing.T) {
	group := func(count int, gpus int64) NodeGroup { return NodeGroup{Free: Resources{gpu: gpus}, Count: count} }
	cases := map[string]struct {
		reason  string
		podSets []v1alpha1.PodSet
		nodes   []NodeGroup
		want    []NodeGroup
	}{
		"FragmentsFirst": {
			reason:  "whole nodes stay free for gangs",
			podSets: []v1alpha1.PodSet{podSet(2, 2)},
			nodes:   []NodeGroup{group(1, 8), group(1, 3), group(1, 2)},
			want:    []NodeGroup{group(1, 0), group(1, 1), group(1, 8)},
		},
		"FillsNodes": {
			reason:  "pods stay together, the last few on one node more",
			podSets: []v1alpha1.PodSet{podSet(7, 2)},
			nodes:   []NodeGroup{group(4, 4)},
			want:    []NodeGroup{group(3, 0), group(1, 2)},
		},
		"AwayFromGPUs": {
			reason:  "pods without GPUs leave nodes with GPUs alone",
			podSets: []v1alpha1.PodSet{podSet(1, 0, requests(corev1.ResourceList{corev1.ResourceCPU: quantity("1")}))},
			nodes: []NodeGroup{
				{Free: Resources{gpu: 8, corev1.ResourceCPU: 2000}, Count: 1},
				{Free: Resources{corev1.ResourceCPU: 3000}, Count: 1},
			},
			want: []NodeGroup{
				{Free: Resources{corev1.ResourceCPU: 2000}, Count: 1},
				{Free: Resources{gpu: 8, corev1.ResourceCPU: 2000}, Count: 1},
			},
		},
		"AsFarAsItFits": {
			reason:  "what has no place is taken off nothing",
			podSets: []v1alpha1.PodSet{podSet(3, 8)},
			nodes:   []NodeGroup{group(2, 8), group(1, 7)},
			want:    []NodeGroup{group(2, 0), group(1, 7)},
		},
		"LargerPhase": {
			reason: "initializers and trainers do not add up",
			podSets: []v1alpha1.PodSet{
				podSet(1, 4, named("model", v1alpha1.RoleModelInitializer)), podSet(2, 3),
			},
			nodes: []NodeGroup{group(1, 8)},
			want:  []NodeGroup{group(1, 2)},
		},
		"PodSlots": {
			reason:  "each pod takes a slot",
			podSets: []v1alpha1.PodSet{podSet(3, 0)},
			nodes:   []NodeGroup{{Free: Resources{corev1.ResourcePods: 110}, Count: 1}},
			want:    []NodeGroup{{Free: Resources{corev1.ResourcePods: 107}, Count: 1}},
		},
		"NoPods": {
			reason: "nothing is taken off",
			nodes:  []NodeGroup{group(1, 8)},
			want:   []NodeGroup{group(1, 8)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, tc.want, NewNodes(tc.nodes).Reserve(tc.podSets).Groups(), fmt.Sprintf("%s\nReserve", tc.reason))
		})
	}
}
