// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"

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
