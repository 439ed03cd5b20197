// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestNoMatchingNode: the reason tells a worker that needs room from a worker whose nodes can never take the job.
func TestNoMatchingNode(t *testing.T) {
	cpu := NodeGroup{Labels: map[string]string{"pool": "cpu"}, Free: Resources{corev1.ResourceCPU: 8000}, Count: 1}
	infra := NodeGroup{Free: Resources{gpu: 8}, Count: 1, Taints: []corev1.Taint{taint("dedicated", "infra", corev1.TaintEffectNoSchedule)}}
	for name, tc := range map[string]struct {
		reason  string
		podSets []v1alpha1.PodSet
		nodes   []NodeGroup
		want    string
	}{
		"Busy":     {reason: "an end of a job helps", podSets: []v1alpha1.PodSet{podSet(1, 8)}, nodes: []NodeGroup{gpuNodes(2, 0)}, want: v1alpha1.ReasonInsufficientResources},
		"TooFew":   {reason: "more such nodes help", podSets: []v1alpha1.PodSet{podSet(9, 8)}, nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonInsufficientResources},
		"NoNodes":  {reason: "the first node may be any", podSets: []v1alpha1.PodSet{podSet(1, 8)}, want: v1alpha1.ReasonInsufficientResources},
		"Selector": {reason: "no node matches it", podSets: []v1alpha1.PodSet{podSet(1, 1, onNodes(map[string]string{"gpu": "none"}))}, nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonNoMatchingNode},
		"Taint":    {reason: "the pods do not tolerate it", podSets: []v1alpha1.PodSet{podSet(1, 1)}, nodes: []NodeGroup{infra}, want: v1alpha1.ReasonNoMatchingNode},
		"Resource": {
			reason: "no node has it", podSets: []v1alpha1.PodSet{podSet(1, 0, requests(corev1.ResourceList{"amd.com/gpu": resource.MustParse("1")}))},
			nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonNoMatchingNode,
		},
		"Elsewhere": {
			reason: "the selector leads to nodes without the resource", podSets: []v1alpha1.PodSet{podSet(1, 1, onNodes(map[string]string{"pool": "cpu"}))},
			nodes: []NodeGroup{gpuNodes(2, 8), cpu}, want: v1alpha1.ReasonNoMatchingNode,
		},
		"OneOfTwo": {
			reason: "both have to run", podSets: []v1alpha1.PodSet{podSet(1, 1), podSet(1, 0, named("other", v1alpha1.RoleTrainer), onNodes(map[string]string{"pool": "none"}))},
			nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonNoMatchingNode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := Worker{Name: "west", Nodes: NewNodes(tc.nodes)}
			job := Job{UID: "job", PodSets: tc.podSets}
			lines := Explain(job, nil, []Worker{w})
			if got := lines[0].Reason; got != tc.want {
				t.Errorf("the reason is %s (%s), want %s: %s", got, lines[0].Message, tc.want, tc.reason)
			}
			if nearest := Nearest(job, nil, []Worker{w}); nearest.Reason != tc.want {
				t.Errorf("the nearest worker has reason %s, want %s: %s", nearest.Reason, tc.want, tc.reason)
			}
		})
	}
}
