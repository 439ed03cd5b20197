// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestFitClaims checks the fit of pods with claims that nodes count, that nodes count and never fit, and that nobody counts.
func TestFitClaims(t *testing.T) {
	claim := v1alpha1.NameOfDeviceClaim("d1", `request gpus (2 of class gpu with model == "a")`)
	class := corev1.ResourceName(v1alpha1.ClaimedDevices + "gpu")
	nodes := func(count int, allocatable, used int64) NodeGroup {
		return NodeGroup{Count: count, Free: FreeOf(
			Resources{"cpu": 8000, class: 8, claim: allocatable}, Resources{claim: used})}
	}
	unlisted := NodeGroup{Count: 1, Free: Resources{"cpu": 8000, class: 8}}
	added := NodeGroup{Count: 4, Free: Resources{"cpu": 8000, class: 8}, Added: "pool"}
	for name, tc := range map[string]struct {
		reason string
		nodes  []NodeGroup
		pods   int32
		// lacks is the message. Empty: the pods fit.
		lacks string
		// mismatched: neither ends of jobs nor more such nodes would help.
		mismatched bool
	}{
		"Fits":     {reason: "Two on each of two nodes.", nodes: []NodeGroup{nodes(2, 2, 0)}, pods: 4},
		"Unlisted": {reason: "Where nobody counts the claims, the number of devices decides.", nodes: []NodeGroup{unlisted}, pods: 4},
		"UnlistedLacks": {
			reason: "Of devices there is a number.", nodes: []NodeGroup{unlisted}, pods: 5,
			lacks: "lacks 2 devices of class gpu on nodes with at least 2 free; 1 more such node would do; it has room for 4 of 5 pods, 1 node in all",
		},
		"Lacks": {
			reason: "One of four claims is taken.", nodes: []NodeGroup{nodes(1, 2, 0), nodes(1, 2, 1)}, pods: 4,
			lacks: `lacks 1 claim of request gpus (2 of class gpu with model == "a") on nodes with at least 1 free; 1 more such node would do; ` +
				"it has room for 3 of 4 pods, 2 nodes in all",
		},
		"LacksOne": {
			reason: "All are taken.", nodes: []NodeGroup{nodes(3, 2, 2)}, pods: 1,
			lacks: `needs a node with 1 claim of request gpus (2 of class gpu with model == "a") free; no such node, 3 nodes in all`,
		},
		"Never": {
			reason: "No node could ever take one.", nodes: []NodeGroup{nodes(3, 0, 0)}, pods: 1, mismatched: true,
			lacks: `no node has devices for a claim of request gpus (2 of class gpu with model == "a")`,
		},
		"NeverOnSome": {
			reason: "The other node has only one.", nodes: []NodeGroup{nodes(3, 0, 0), nodes(1, 1, 0)}, pods: 2,
			lacks: `lacks 1 claim of request gpus (2 of class gpu with model == "a") on nodes with at least 1 free; 1 more such node would do; ` +
				"it has room for 1 of 2 pods, 4 nodes in all",
		},
		"Added": {reason: "Nobody knows the devices of a node that is not there.", nodes: []NodeGroup{nodes(3, 0, 0), added}, pods: 16},
	} {
		t.Run(name, func(t *testing.T) {
			set := podSet(tc.pods, 1, requests(corev1.ResourceList{class: resource.MustParse("2"), claim: resource.MustParse("1")}))
			for what, n := range map[string]*Nodes{"nodes": NewNodes(tc.nodes), "their groups": NewNodes(NewNodes(tc.nodes).Groups())} {
				lacks, shortfall := "", n.Fit([]v1alpha1.PodSet{set})
				if shortfall != nil {
					lacks = shortfall.Message
				}
				check.Equal(t, tc.lacks, lacks, "%s: %s", what, tc.reason)
				check.Equal(t, tc.mismatched, newGang([]v1alpha1.PodSet{set}).mismatched(n), "mismatched with %s", what)
			}
		})
	}
	check.Equal(t, int64(math.MaxInt64), NewNodes([]NodeGroup{unlisted}).Free(claim), "free claims that are not counted")
	check.Equal(t, int64(3), NewNodes([]NodeGroup{nodes(1, 4, 1), nodes(1, 0, 0)}).Free(claim), "free claims")
}
