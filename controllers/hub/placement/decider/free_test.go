// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

func TestUnbound(t *testing.T) {
	podSets := []v1alpha1.PodSet{{Name: "initializer", Count: 1}, {Name: "node", Count: 4}}
	for name, test := range map[string]struct {
		reason string
		pods   map[string]capacity.GangPods
		want   []v1alpha1.PodSet
	}{
		"NothingSeen": {reason: "all is still to come", want: podSets},
		"Partly": {
			reason: "a pod counts once: as bound, or as demand",
			pods:   map[string]capacity.GangPods{"initializer": {Succeeded: 1}, "node": {Bound: 1, Succeeded: 1}},
			want:   []v1alpha1.PodSet{{Name: "node", Count: 2}},
		},
		"All": {reason: "nothing is left", pods: map[string]capacity.GangPods{"initializer": {Succeeded: 1}, "node": {Bound: 4}}},
		"More": {
			reason: "pods that are being replaced are more than the demand",
			pods:   map[string]capacity.GangPods{"initializer": {Bound: 2}, "node": {Bound: 7}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, test.want, unbound(podSets, test.pods), fmt.Sprintf("unbound(): %s", test.reason))
		})
	}
}

// TestQuotaCountsOnce: a job of ours counts as demand until Kueue has reserved its quota, and its room is not free
// before Kueue takes the reservation back.
func TestQuotaCountsOnce(t *testing.T) {
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "team", Name: name} }
	four := []v1alpha1.KueueAmount{{Flavor: "h100", Resource: "cpu", Amount: 4000}}
	podSets := []v1alpha1.PodSet{{Name: "node", Count: 4, Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}
	for name, test := range map[string]struct {
		reason    string
		workloads []v1alpha1.KueueWorkload
		queue     string
		left      int32 // Pods of one cpu that still fit into the quota of 10.
		takesRoom bool
	}{
		"NoWorkload": {reason: "its queue is known from the decision", queue: "main", left: 6},
		"Waits": {
			reason: "its queue is known from its Workload", left: 6,
			workloads: []v1alpha1.KueueWorkload{{Namespace: "team", Job: "ours", Queue: "main"}},
		},
		"Reserved": {
			reason: "the reservation counts, and the demand does not", queue: "main", left: 6, takesRoom: true,
			workloads: []v1alpha1.KueueWorkload{{Namespace: "team", Job: "ours", Queue: "main", ClusterQueue: "q", Used: four}},
		},
		"Outside": {reason: "Kueue does not queue it", left: 10},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &v1alpha1.KueueQuota{
				ClusterQueues: []v1alpha1.KueueClusterQueue{{Name: "q", Groups: []v1alpha1.KueueResourceGroup{{
					Resources: []corev1.ResourceName{"cpu"},
					Flavors:   []v1alpha1.KueueFlavorQuotas{{Name: "h100", Quotas: []v1alpha1.KueueResourceQuota{{Resource: "cpu", Nominal: 10_000}}}},
				}}}},
				LocalQueues: []v1alpha1.KueueLocalQueue{{Namespace: "team", Name: "main", ClusterQueue: "q"}},
				Flavors:     []v1alpha1.KueueFlavor{{Name: "h100"}}, Workloads: test.workloads,
			}
			if test.takesRoom {
				counted.ClusterQueues[0].Used = four
			}
			ours := &assignment{key: key("ours"), podSets: podSets}
			if test.queue != "" {
				ours.queue = key(test.queue)
			}
			n := newFreeNodes(nil, &capacity.Snapshot{Quota: counted}, counts{kueue: v1alpha1.KueueCapacityQuota}, &charging{}, []*assignment{ours})
			left := func(nodes *dispatch.Nodes) (pods int32) {
				fits := func(count int32) bool {
					return nodes.In(key("main")).Fit([]v1alpha1.PodSet{{Name: "node", Count: count, Requests: podSets[0].Requests}}) == nil
				}
				for fits(pods + 1) {
					pods++
				}
				return pods
			}
			without, _ := n.free([]*assignment{ours}, map[types.NamespacedName]bool{ours.key: true})
			if got := left(n.nodes); got != test.left || left(without) != 10 || left(n.withoutJobs()) != 10 {
				t.Errorf("%s: %d pods fit, %d without the job and %d without any job; want %d, 10 and 10",
					test.reason, got, left(without), left(n.withoutJobs()), test.left)
			}
			if got := n.takesRoom(ours.key); got != test.takesRoom {
				t.Errorf("%s: takes room: %t", test.reason, got)
			}
		})
	}
}
