// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Basis is for what the worker's Kueue charges quota. It depends on the Kubeflow Trainer with which that Kueue was
// built, and nothing on the worker names that version: only Workloads show it. See v1alpha1.PodSet.UnmergedRequests.
type Basis int

const (
	// Assumed means that no Workload has shown it. The smaller request counts, so that no job waits in vain for quota that
	// it does not need.
	Assumed Basis = iota
	// Merged means for the requests of the pods.
	Merged
	// Unmerged means for the unmerged requests.
	Unmerged
)

// On returns the Tree of a worker whose Kueue charges on this basis.
func (t *Tree) On(basis Basis) *Tree {
	p := *t.plan
	p.basis = basis
	return &Tree{plan: &p, used: t.used}
}

// Basis is for what the worker's Kueue charges quota.
func (q ClusterQueue) Basis() Basis { return q.tree.basis }

// Requests returns what all pods of a TrainJob request by its Workloads, as the worker's Kueue counts them, one map for
// each Workload that Kueue has looked at.
func (t *Tree) Requests(job types.NamespacedName) []map[corev1.ResourceName]int64 {
	var all []map[corev1.ResourceName]int64
	for i := range t.workloads[job] {
		if list := t.workloads[job][i].Requests; len(list) > 0 {
			requests := make(map[corev1.ResourceName]int64, len(list))
			for _, r := range list {
				requests[r.Resource] = bounded(r.Amount)
			}
			all = append(all, requests)
		}
	}
	return all
}
