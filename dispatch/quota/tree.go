// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Resource is a resource of a flavor.
type Resource struct {
	Flavor string
	Name   corev1.ResourceName
}

// Amounts are amounts of resources of flavors.
type Amounts map[Resource]int64

// Tree is the quota of one worker, and what is used of it.
type Tree struct {
	*plan
	// used is what counts against each node. A node is a position in plan.nodes. Trees share the maps.
	used []Amounts
}

// plan is what Trees of one worker share.
type plan struct {
	nodes        []node // The ClusterQueues are first.
	downwards    []int  // The nodes, each one before its children.
	fault        string // Why nothing is counted. Empty: it is counted.
	clusterQueue map[string]int
	localQueue   map[types.NamespacedName]*v1alpha1.KueueLocalQueue
	flavors      map[string]*v1alpha1.KueueFlavor
	workloads    map[types.NamespacedName][]v1alpha1.KueueWorkload
	reserved     []Amounts // What the Workloads have reserved in each ClusterQueue.
	basis        Basis
}

// node is a ClusterQueue or a Cohort.
type node struct {
	name    string
	parent  int // noParent: it is a root.
	limits  map[Resource]limits
	subtree Amounts
	groups  []v1alpha1.KueueResourceGroup
	stopped string
}

const noParent = -1

// limits are the limits of one resource of a flavor. A limit of unlimited is none.
type limits struct{ nominal, borrowing, lending int64 }

const unlimited = math.MaxInt64

// largest is the largest amount that is read. It is so small that no sum of amounts overflows.
const largest = math.MaxInt64 / 10_000

// The worker decides how many ClusterQueues and Cohorts there are, and how deep the Cohorts are. One decider counts for
// all workers. So its time for one worker is bounded.
const (
	// maxDepth is how many levels a tree may have, ClusterQueues included.
	maxDepth = 64
	// maxNodes is how many ClusterQueues and Cohorts are counted.
	maxNodes = 4096
)

// New returns the Tree of what was counted on a worker. Nil is a worker without queues. New takes any input: where the
// input makes no sense, or is too large, the ClusterQueues start nothing, and Queue says why. The Basis is Assumed.
func New(counted *v1alpha1.KueueQuota) *Tree {
	if counted == nil {
		counted = &v1alpha1.KueueQuota{}
	}
	p := &plan{
		clusterQueue: map[string]int{}, localQueue: map[types.NamespacedName]*v1alpha1.KueueLocalQueue{},
		flavors: map[string]*v1alpha1.KueueFlavor{}, workloads: map[types.NamespacedName][]v1alpha1.KueueWorkload{},
	}
	if p.fault = tooMany(counted); p.fault != "" {
		counted = &v1alpha1.KueueQuota{Workloads: counted.Workloads}
	}
	for i := range counted.ClusterQueues {
		q := &counted.ClusterQueues[i]
		p.clusterQueue[q.Name] = len(p.nodes)
		p.nodes = append(p.nodes, node{name: q.Name, groups: q.Groups, limits: limitsOf(q.Groups), stopped: q.Stopped})
		p.reserved = append(p.reserved, amountsOf(q.Used))
	}
	p.link(counted)
	for i := range counted.LocalQueues {
		q := &counted.LocalQueues[i]
		p.localQueue[types.NamespacedName{Namespace: q.Namespace, Name: q.Name}] = q
	}
	for i := range counted.Flavors {
		p.flavors[counted.Flavors[i].Name] = &counted.Flavors[i]
	}
	for _, w := range counted.Workloads {
		key := types.NamespacedName{Namespace: w.Namespace, Name: w.Job}
		p.workloads[key] = append(p.workloads[key], w)
	}
	p.sum()
	return p.tree(p.reserved)
}

// tooMany says that the worker has more ClusterQueues and Cohorts than are counted, or returns "".
func tooMany(counted *v1alpha1.KueueQuota) string {
	cohorts := map[string]struct{}{}
	for i := range counted.Cohorts {
		cohorts[counted.Cohorts[i].Name] = struct{}{}
		cohorts[counted.Cohorts[i].Parent] = struct{}{}
	}
	for i := range counted.ClusterQueues {
		cohorts[counted.ClusterQueues[i].Cohort] = struct{}{}
	}
	delete(cohorts, "")
	nodes := len(counted.ClusterQueues) + len(cohorts)
	if nodes <= maxNodes {
		return ""
	}
	return fmt.Sprintf("the worker has %d ClusterQueues and cohorts, and at most %d are counted", nodes, maxNodes)
}

// link finds the parents. A Cohort that is only named gets a node too.
func (p *plan) link(counted *v1alpha1.KueueQuota) {
	cohorts, parents := map[string]int{}, map[int]string{}
	add := func(name string) {
		if _, known := cohorts[name]; name != "" && !known {
			cohorts[name] = len(p.nodes)
			p.nodes = append(p.nodes, node{name: name, limits: map[Resource]limits{}})
		}
	}
	for i := range counted.Cohorts {
		c := &counted.Cohorts[i]
		if c.Name == "" {
			continue // No ClusterQueue is in it.
		}
		add(c.Name)
		p.nodes[cohorts[c.Name]].limits = limitsOf(c.Groups)
		parents[cohorts[c.Name]] = c.Parent
	}
	for i := range counted.Cohorts {
		add(counted.Cohorts[i].Parent)
	}
	for i := range counted.ClusterQueues {
		add(counted.ClusterQueues[i].Cohort)
		parents[p.clusterQueue[counted.ClusterQueues[i].Name]] = counted.ClusterQueues[i].Cohort
	}
	for i := range p.nodes {
		p.nodes[i].parent = noParent
		if parent := parents[i]; parent != "" {
			p.nodes[i].parent = cohorts[parent]
		}
	}
	p.arrange()
}

// arrange orders the nodes. It stops the ClusterQueues whose Cohorts form a cycle, as Kueue does, and those of trees
// that are too deep, and takes these trees apart.
func (p *plan) arrange() {
	children := make([][]int, len(p.nodes))
	for i := range p.nodes {
		if parent := p.nodes[i].parent; parent != noParent {
			children[parent] = append(children[parent], i)
		}
	}
	p.downwards = make([]int, 0, len(p.nodes))
	stopped := map[int]string{}
	reached := make([]bool, len(p.nodes))
	for i := range p.nodes {
		if p.nodes[i].parent != noParent {
			continue
		}
		first := len(p.downwards)
		levels := p.descend(i, children)
		for _, at := range p.downwards[first:] {
			if reached[at] = true; levels > maxDepth {
				stopped[at] = fmt.Sprintf("its cohorts have %d levels, and at most %d are counted", levels, maxDepth)
			}
		}
	}
	for i := range p.nodes {
		if !reached[i] {
			p.downwards = append(p.downwards, i)
			stopped[i] = "its cohorts form a cycle"
		}
	}
	for i, why := range stopped {
		p.nodes[i].parent, p.nodes[i].stopped = noParent, why
	}
}

// descend appends the tree of a root to downwards, level by level, and returns the number of levels.
func (p *plan) descend(root int, children [][]int) (levels int) {
	for level := []int{root}; len(level) > 0; levels++ {
		p.downwards = append(p.downwards, level...)
		var next []int
		for _, at := range level {
			next = append(next, children[at]...)
		}
		level = next
	}
	return levels
}

// sum computes the quotas of all subtrees.
func (p *plan) sum() {
	for i := range p.nodes {
		p.nodes[i].subtree = Amounts{}
		for r, l := range p.nodes[i].limits {
			p.nodes[i].subtree[r] = l.nominal
		}
	}
	for _, i := range slices.Backward(p.downwards) {
		n := &p.nodes[i]
		if n.parent == noParent {
			continue
		}
		parent := &p.nodes[n.parent]
		for r, amount := range n.subtree {
			parent.subtree[r] += amount - n.kept(r)
		}
	}
}

// kept is what the node never lends.
func (n *node) kept(r Resource) int64 {
	l, has := n.limits[r]
	if !has || l.lending == unlimited {
		return 0
	}
	return max(0, n.subtree[r]-l.lending)
}

// tree returns the Tree in which the ClusterQueues use these amounts.
func (p *plan) tree(used []Amounts) *Tree {
	t := &Tree{plan: p, used: make([]Amounts, len(p.nodes))}
	for i := range p.nodes {
		t.used[i] = Amounts{}
		if i < len(used) {
			maps.Copy(t.used[i], used[i])
		}
	}
	for _, i := range slices.Backward(p.downwards) {
		n := &p.nodes[i]
		if n.parent == noParent {
			continue
		}
		for r, amount := range t.used[i] {
			if above := amount - n.kept(r); above > 0 {
				t.used[n.parent][r] += above
			}
		}
	}
	return t
}

func limitsOf(groups []v1alpha1.KueueResourceGroup) map[Resource]limits {
	all := map[Resource]limits{}
	for _, group := range groups {
		for _, flavor := range group.Flavors {
			for _, q := range flavor.Quotas {
				l := limits{nominal: bounded(q.Nominal), borrowing: unlimited, lending: unlimited}
				if q.BorrowingLimit != nil {
					l.borrowing = bounded(*q.BorrowingLimit)
				}
				if q.LendingLimit != nil {
					l.lending = bounded(*q.LendingLimit)
				}
				all[Resource{flavor.Name, q.Resource}] = l
			}
		}
	}
	return all
}

func amountsOf(list []v1alpha1.KueueAmount) Amounts {
	amounts := Amounts{}
	for _, a := range list {
		amounts[Resource{a.Flavor, a.Resource}] += bounded(a.Amount)
	}
	return amounts
}

func bounded(amount int64) int64 { return min(max(amount, 0), largest) }
