// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
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
	clusterQueue map[string]int
	localQueue   map[types.NamespacedName]*v1alpha1.KueueLocalQueue
	flavors      map[string]*v1alpha1.KueueFlavor
	workloads    map[types.NamespacedName][]v1alpha1.KueueWorkload
	reserved     []Amounts // What the Workloads have reserved in each ClusterQueue.
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

// New returns the Tree of what was counted on a worker. Nil is a worker without queues.
func New(counted *v1alpha1.KueueQuota) *Tree {
	if counted == nil {
		counted = &v1alpha1.KueueQuota{}
	}
	p := &plan{
		clusterQueue: map[string]int{}, localQueue: map[types.NamespacedName]*v1alpha1.KueueLocalQueue{},
		flavors: map[string]*v1alpha1.KueueFlavor{}, workloads: map[types.NamespacedName][]v1alpha1.KueueWorkload{},
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
	p.cut()
}

// cut stops the ClusterQueues whose Cohorts form a cycle, as Kueue does, and ends the cycles.
func (p *plan) cut() {
	var loops []int
	for i := range p.nodes {
		at, steps := i, 0
		for ; p.nodes[at].parent != noParent && steps <= len(p.nodes); steps++ {
			at = p.nodes[at].parent
		}
		if steps > len(p.nodes) {
			loops = append(loops, i)
		}
	}
	for _, i := range loops {
		p.nodes[i].parent = noParent
		p.nodes[i].stopped = "its cohorts form a cycle"
	}
}

// sum computes the quotas of all subtrees.
func (p *plan) sum() {
	for i := range p.nodes {
		p.nodes[i].subtree = Amounts{}
		for r, l := range p.nodes[i].limits {
			p.nodes[i].subtree[r] = l.nominal
		}
	}
	for _, i := range p.upwards() {
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

// upwards returns the nodes, each one before its parent.
func (p *plan) upwards() []int {
	depth := make([]int, len(p.nodes))
	order := make([]int, len(p.nodes))
	for i := range p.nodes {
		order[i] = i
		for at := p.nodes[i].parent; at != noParent; at = p.nodes[at].parent {
			depth[i]++
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return depth[b] - depth[a] })
	return order
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
	for _, i := range p.upwards() {
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
