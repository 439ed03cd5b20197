// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// ClusterQueue is a ClusterQueue of a Tree.
type ClusterQueue struct {
	tree *Tree
	at   int
}

// Queue returns the ClusterQueue to which a LocalQueue leads. problem says why a job in the LocalQueue would not start,
// whatever quota there is. Empty: it may start.
func (t *Tree) Queue(local types.NamespacedName) (queue ClusterQueue, problem string) {
	if t.fault != "" {
		return ClusterQueue{}, t.fault
	}
	l := t.localQueue[local]
	if l == nil {
		return ClusterQueue{}, fmt.Sprintf("the worker has no LocalQueue %s", local)
	}
	at, known := t.clusterQueue[l.ClusterQueue]
	switch {
	case !known:
		return ClusterQueue{}, fmt.Sprintf("LocalQueue %s leads to ClusterQueue %s, which does not exist", local, l.ClusterQueue)
	case t.nodes[at].stopped != "":
		return ClusterQueue{}, fmt.Sprintf("ClusterQueue %s starts no jobs: %s", l.ClusterQueue, t.nodes[at].stopped)
	case l.Stopped != "":
		return ClusterQueue{}, fmt.Sprintf("LocalQueue %s starts no jobs: %s", local, l.Stopped)
	}
	return ClusterQueue{tree: t, at: at}, ""
}

// Name is the name of the ClusterQueue.
func (q ClusterQueue) Name() string { return q.tree.nodes[q.at].name }

// Groups are its resource groups, in their order.
func (q ClusterQueue) Groups() []v1alpha1.KueueResourceGroup { return q.tree.nodes[q.at].groups }

// Flavor returns a ResourceFlavor of the worker, nil if it does not exist.
func (q ClusterQueue) Flavor(name string) *v1alpha1.KueueFlavor { return q.tree.flavors[name] }

// Available is what the ClusterQueue may reserve now. It is negative if more is reserved than there is.
func (q ClusterQueue) Available(r Resource) int64 { return q.tree.available(q.at, r) }

// Most is what the ClusterQueue may reserve if nothing is reserved in its tree.
func (q ClusterQueue) Most(r Resource) int64 { return q.tree.most(q.at, r) }

func (t *Tree) available(at int, r Resource) int64 {
	n := &t.nodes[at]
	subtree, used := n.subtree[r], t.used[at][r]
	if n.parent == noParent {
		return subtree - used
	}
	kept, above := n.kept(r), t.available(n.parent, r)
	if l, has := n.limits[r]; has && l.borrowing != unlimited {
		above = min(above, subtree-kept-max(0, used-kept)+l.borrowing)
	}
	return max(0, kept-used) + above
}

func (t *Tree) most(at int, r Resource) int64 {
	n := &t.nodes[at]
	if n.parent == noParent {
		return n.subtree[r]
	}
	most := n.kept(r) + t.most(n.parent, r)
	if l, has := n.limits[r]; has && l.borrowing != unlimited {
		most = min(most, n.subtree[r]+l.borrowing)
	}
	return most
}

// Charge returns the Tree in which the ClusterQueue has reserved more. The amounts must not be negative. They may be
// more than the ClusterQueue has available.
func (q ClusterQueue) Charge(amounts Amounts) *Tree {
	charged := &Tree{plan: q.tree.plan, used: append([]Amounts(nil), q.tree.used...)}
	for at := q.at; at != noParent; at = q.tree.nodes[at].parent {
		charged.used[at] = maps.Clone(charged.used[at])
	}
	for r, amount := range amounts {
		for at := q.at; at != noParent && amount > 0; at = q.tree.nodes[at].parent {
			room := max(0, q.tree.nodes[at].kept(r)-charged.used[at][r])
			charged.used[at][r] += amount
			amount -= room
		}
	}
	return charged
}

// Without returns the Tree as the worker reported it, but without the Workloads of some TrainJobs.
func (t *Tree) Without(gone func(job types.NamespacedName) bool) *Tree {
	used := append([]Amounts(nil), t.reserved...)
	changed := map[int]bool{}
	for job, workloads := range t.workloads {
		if !gone(job) {
			continue
		}
		for i := range workloads {
			at, known := t.clusterQueue[workloads[i].ClusterQueue]
			if !known {
				continue
			}
			if !changed[at] {
				used[at], changed[at] = maps.Clone(used[at]), true
			}
			for r, amount := range amountsOf(workloads[i].Used) {
				used[at][r] = max(0, used[at][r]-amount)
			}
		}
	}
	return t.tree(used)
}

// Empty returns the Tree in which nothing is reserved.
func (t *Tree) Empty() *Tree { return t.tree(nil) }

// Reserved says whether the Workload of a TrainJob has reserved quota, and the name of its LocalQueue. The name is
// empty if the TrainJob has no Workload.
func (t *Tree) Reserved(job types.NamespacedName) (reserved bool, queue string) {
	for _, w := range t.workloads[job] {
		reserved, queue = reserved || w.ClusterQueue != "", w.Queue
	}
	return reserved, queue
}

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
