// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/quota"
)

// BasisOf says for what a worker's Kueue charges quota, as the requests of one of its Workloads show: they are those of
// all pods of the job. Assumed: they do not show it.
func BasisOf(podSets []v1alpha1.PodSet, requests map[corev1.ResourceName]int64) quota.Basis {
	merged, unmerged := chargedOf(podSets, quota.Merged), chargedOf(podSets, quota.Unmerged)
	var isMerged, isUnmerged bool
	for _, all := range []Resources{merged, unmerged} {
		for name := range all {
			if merged[name] != unmerged[name] {
				isMerged = isMerged || requests[name] == merged[name]
				isUnmerged = isUnmerged || requests[name] == unmerged[name]
			}
		}
	}
	switch {
	case isMerged && !isUnmerged:
		return quota.Merged
	case isUnmerged && !isMerged:
		return quota.Unmerged
	}
	return quota.Assumed
}

// chargedOf is what the pods of all PodSets are charged together.
func chargedOf(podSets []v1alpha1.PodSet, basis quota.Basis) Resources {
	all := Resources{}
	for i := range podSets {
		for name, amount := range charged(&podSets[i], basis) {
			all[name] = addUpTo(all[name], mulUpTo(max(amount, 0), int64(max(podSets[i].Count, 0))))
		}
	}
	return all
}

// charged is what a Kueue charges for one pod.
func charged(set *v1alpha1.PodSet, basis quota.Basis) Resources {
	merged, unmerged := FromList(set.Requests), FromList(set.Requests)
	if set.MergedRequests != nil {
		merged = FromList(set.MergedRequests)
	}
	if set.UnmergedRequests != nil {
		unmerged = FromList(set.UnmergedRequests)
	}
	requests := merged
	switch basis {
	case quota.Merged:
	case quota.Unmerged:
		requests = unmerged
	case quota.Assumed:
		for name := range merged {
			merged[name] = min(merged[name], unmerged[name])
		}
	}
	maps.DeleteFunc(requests, func(name corev1.ResourceName, amount int64) bool {
		// A Kueue has names of its own for claimed devices. What it charges nothing of, it does not see, so it needs no flavor.
		return v1alpha1.IsClaimed(name) || amount <= 0 && IsAmbiguous(set)
	})
	return requests
}

// IsAmbiguous says whether what a Kueue charges for the pods depends on the Kubeflow Trainer with which it was built.
func IsAmbiguous(set *v1alpha1.PodSet) bool {
	return set.MergedRequests != nil || set.UnmergedRequests != nil
}

// assumption says in words what is assumed of the quota that a worker charges for the gang, or "" if nothing is.
func (g *gang) assumption(n *Nodes) string {
	q := n.queued()
	if q == nil || q.problem != "" || q.queue.Basis() != quota.Assumed {
		return ""
	}
	assumed, other := chargedOf(g.podSets, quota.Assumed), Resources{}
	for _, basis := range []quota.Basis{quota.Merged, quota.Unmerged} {
		for name, amount := range chargedOf(g.podSets, basis) {
			other[name] = max(other[name], amount)
		}
	}
	var differences []string
	for _, name := range namesOf(other) {
		if other[name] != assumed[name] {
			differences = append(differences, fmt.Sprintf("%s of %s", formatAmount(name, assumed[name]), format(name, other[name])))
		}
	}
	if len(differences) == 0 {
		return ""
	}
	return "; assumed, until a Workload there shows it: Kueue charges only " + list(differences, ", ")
}
