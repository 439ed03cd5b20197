// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestAdmittedDemandCounts: on a worker whose admission changes the pods, what it makes of them counts, and elsewhere
// what the runtime says.
func TestAdmittedDemandCounts(t *testing.T) {
	tainted := func(w *Worker) {
		w.Nodes = NewNodes([]NodeGroup{{
			Free: Resources{gpu: 8, corev1.ResourceCPU: 8000}, Count: 2, Taints: []corev1.Taint{taint("gpu", "", corev1.TaintEffectNoSchedule)},
		}})
	}
	tolerates := func(set *v1alpha1.PodSet) {
		set.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	}
	withCPU := func(set *v1alpha1.PodSet) { set.Requests[corev1.ResourceCPU] = resource.MustParse("9") }
	for name, tc := range map[string]struct {
		reason   string
		admitted map[v1alpha1.ClusterName][]v1alpha1.PodSet
		want     v1alpha1.ClusterName
		reasonOf string
	}{
		"Assumed": {reason: "nobody tolerates the taint", reasonOf: v1alpha1.ReasonNoMatchingNode},
		"Tolerated": {
			reason:   "the worker's admission adds the toleration",
			admitted: map[v1alpha1.ClusterName][]v1alpha1.PodSet{"east": {podSet(2, 8, tolerates)}},
			want:     "east", reasonOf: v1alpha1.ReasonFits,
		},
		"Larger": {
			reason:   "the worker's admission adds more CPUs than a node has",
			admitted: map[v1alpha1.ClusterName][]v1alpha1.PodSet{"east": {podSet(2, 8, tolerates, withCPU)}},
			reasonOf: v1alpha1.ReasonInsufficientResources,
		},
		"Elsewhere": {
			reason:   "what another worker makes of them does not matter",
			admitted: map[v1alpha1.ClusterName][]v1alpha1.PodSet{"west": {podSet(2, 8, tolerates)}},
			reasonOf: v1alpha1.ReasonNoMatchingNode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(2, 8)}, Admitted: tc.admitted}
			workers := []Worker{worker("east", 0, 0, tainted)}
			if got := Decide(job, nil, workers); got.Cluster != tc.want {
				t.Errorf("%s\nDecide = %+v, want %q", tc.reason, got, tc.want)
			}
			line := Explain(job, nil, workers)[0]
			check.Equal(t, tc.reasonOf, line.Reason, "%s: Explain", tc.reason)
			_, changed := tc.admitted["east"]
			check.Equal(t, changed && tc.want == "", strings.Contains(line.Message, "admission"), "%s: users learn of requests that are not theirs", tc.reason)
			check.Equal(t, tc.reasonOf, Nearest(job, nil, workers).Reason, "%s: Nearest", tc.reason)
		})
	}
}

// TestPreemptionCountsAdmittedDemand: jobs are stopped only where their room is enough for what the pods become.
func TestPreemptionCountsAdmittedDemand(t *testing.T) {
	withCPU := podSet(1, 8, func(set *v1alpha1.PodSet) { set.Requests[corev1.ResourceCPU] = resource.MustParse("9") })
	site := tenants{
		nodes: []NodeGroup{{Free: Resources{gpu: 8, corev1.ResourceCPU: 8000}, Count: 1}},
		jobs:  []tenant{{Victim: Victim{UID: "victim"}, takes: []Resources{{gpu: 8}}}},
	}
	policy := Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority}}}
	for want, admitted := range map[bool]map[v1alpha1.ClusterName][]v1alpha1.PodSet{true: nil, false: {"east": {withCPU}}} {
		job := Job{UID: "job", Priority: 1, PodSets: []v1alpha1.PodSet{podSet(1, 8)}, Admitted: admitted}
		_, got := Preempt(job, []Policy{policy}, []Worker{site.worker("east")}, func(v1alpha1.ClusterName) Occupancy { return site })
		check.Equal(t, want, got, "with the demand %v on the worker, Preempt finds victims", admitted)
	}
}
