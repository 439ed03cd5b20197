// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Addable returns the nodes that a worker can still add, as NewNodes takes them. has says how many nodes of an item of
// spec.expandable the worker has.
func Addable(items []v1alpha1.ExpandableNodes, has func(item *v1alpha1.ExpandableNodes) int) []NodeGroup {
	var groups []NodeGroup
	for i := range items {
		item := &items[i]
		count := int(item.Maximum) - has(item)
		if count <= 0 {
			continue
		}
		labels := maps.Clone(item.Selector)
		maps.Copy(labels, item.Labels)
		groups = append(groups, NodeGroup{
			Labels: labels, Taints: item.Taints, Free: allocatableOf(item), Count: count, Added: item.Name,
		})
	}
	return groups
}

// AddableOf is Addable as the status of a WorkerCluster says it, or the groups of nodes there if the manager has not
// looked at an item yet.
func AddableOf(cluster *v1alpha1.WorkerCluster) []NodeGroup {
	return Addable(cluster.Spec.Expandable, func(item *v1alpha1.ExpandableNodes) (has int) {
		for i := range cluster.Status.Expandable {
			if status := &cluster.Status.Expandable[i]; status.Name == item.Name {
				return int(status.Nodes)
			}
		}
		for i := range cluster.Status.NodeGroups {
			if group := &cluster.Status.NodeGroups[i]; item.Recognizes(group.Labels) {
				has += int(group.Nodes)
			}
		}
		return has
	})
}

// allocatableOf is what one new node has.
func allocatableOf(item *v1alpha1.ExpandableNodes) Resources {
	has := FromList(corev1.ResourceList(item.Allocatable))
	for class, count := range item.Devices {
		has[corev1.ResourceName(v1alpha1.ClaimedDevices+class)] = int64(count)
	}
	return has
}

// Present returns the nodes without those that the worker would have to add: the same nodes if there are none of these.
func (n *Nodes) Present() *Nodes {
	if n == nil || n.there == nil {
		return n
	}
	present := *n.there
	present.omitted, present.quota, present.ignored = n.omitted, n.quota, n.ignored
	return &present
}

// setPresent keeps the nodes of Present. It is a part of setRows, whose rows are sorted: the nodes that are not there
// come last.
func setPresent(n *Nodes, rows []row) {
	n.there = nil
	classes := len(n.classes)
	for classes > 0 && n.classes[classes-1].added != "" {
		classes--
	}
	if classes == len(n.classes) {
		return
	}
	end, _ := slices.BinarySearchFunc(rows, classes, func(r row, class int) int { return cmp.Compare(r.class, class) })
	present := &Nodes{names: n.names, classes: slices.Clone(n.classes[:classes]), shape: n.shape}
	for i := range present.shape {
		present.shape[i] ^= 0xff // Results about the classes of n are not about these.
	}
	for i := range present.classes {
		present.classes[i].first, present.classes[i].end = 0, 0
	}
	present.setRows(rows[:end])
	n.there = present
}

// canAdd says whether some of the nodes are not there.
func canAdd(n *Nodes) bool { return n != nil && n.there != nil }

// cost is what it costs to put pods on a node.
type cost uint8

const (
	// there: the node is there.
	there cost = iota
	// planned: the worker has to add the node, for other pods of the gang.
	planned
	// toAdd: the worker has to add the node.
	toAdd
)

// costOf returns what it costs to put pods on a node of a run.
func (p *placement) costOf(r *run) cost {
	switch {
	case p.nodes.there == nil || p.nodes.classes[r.class].added == "":
		return there
	case p.isUsed(r):
		return planned
	}
	return toAdd
}

// isUsed says whether pods of the gang are on the nodes of a run, in this phase or an earlier one.
func (p *placement) isUsed(r *run) bool {
	row := p.nodes.row(r.row)
	return !slices.Equal(r.free, row) || !slices.Equal(r.low, row)
}

// PoolPrice is the price of nodes that a worker can add: of a unit of each resource, as Worker.Price, and of a node.
type PoolPrice struct {
	Unit Prices
	Node float64
}

// poolPrices are the prices of the items of spec.expandable, by their names.
func poolPrices(cluster *v1alpha1.WorkerCluster) map[string]PoolPrice {
	if len(cluster.Spec.Expandable) == 0 {
		return nil
	}
	prices := make(map[string]PoolPrice, len(cluster.Spec.Expandable))
	for i := range cluster.Spec.Expandable {
		item := &cluster.Spec.Expandable[i]
		price := PoolPrice{Unit: PricesOf(item.Price)}
		if item.Price == nil {
			price.Unit = PricesOf(cluster.Spec.Price)
		}
		for name := range price.Unit {
			price.Unit[name] = max(price.Unit[name], 0) // The CRD cannot check it: that would cost the API server too much.
		}
		for name, amount := range allocatableOf(item) {
			price.Node += units(name, max(amount, 0)) * price.Unit[name]
		}
		prices[item.Name] = price
	}
	return prices
}

// expansion is the nodes that a worker would add for a job.
type expansion struct {
	pools []addedNodes // By name.
	nodes int64
	price float64 // Of all these nodes, per hour.
}

// addedNodes are nodes of one item of spec.expandable.
type addedNodes struct {
	name  string
	nodes int64
	taken Resources // What the job takes on them.
}

// expansionOn returns the nodes that the worker would add for a job that fits there, nil if it fits on nodes that are
// there. Nodes for which other jobs wait already count too. Which nodes really come, the worker's autoscaler decides.
func (f *filters) expansionOn(w *Worker) *expansion {
	if !canAdd(w.Nodes) {
		return nil
	}
	if f.expansions == nil {
		f.expansions = map[v1alpha1.ClusterName]*expansion{}
	}
	known := f.expansions[w.Name]
	if known == nil {
		known = expansionOf(f.gangOn(w), w)
		f.expansions[w.Name] = known
	}
	if known.nodes == 0 {
		return nil // fits has missed that pods of several kinds have places on nodes that are there.
	}
	return known
}

// expansionOf places the gang on the worker, and counts the nodes that are not there. Afterwards it is bound to the
// nodes.
func expansionOf(g *gang, w *Worker) *expansion {
	n := withPorts(w.Nodes, g.hostPorts)
	g.bind(n)
	defer g.bind(w.Nodes)
	p := &g.place
	p.begin(n)
	for i := range g.phases {
		p.most(g, g.phases[i].pods)
		p.nextPhase()
	}
	e := &expansion{}
	for i := range p.start {
		if r := &p.start[i]; p.costOf(r) == planned {
			e.add(n, r)
		}
	}
	slices.SortFunc(e.pools, func(a, b addedNodes) int { return cmp.Compare(a.name, b.name) })
	for _, pool := range e.pools {
		e.nodes += pool.nodes
		e.price += float64(pool.nodes) * w.Pools[pool.name].Node
	}
	return e
}

// dearer is how much more the job's part of a resource on the added nodes costs than it would on the worker's others.
func (e *expansion) dearer(w *Worker, name corev1.ResourceName) (more float64) {
	for _, pool := range e.pools {
		more += units(name, pool.taken[name]) * (w.Pools[pool.name].Unit[name] - w.Price[name])
	}
	return more
}

// add adds the nodes of a run.
func (e *expansion) add(n *Nodes, r *run) {
	name := n.classes[r.class].added
	at := slices.IndexFunc(e.pools, func(pool addedNodes) bool { return pool.name == name })
	if at < 0 {
		at = len(e.pools)
		e.pools = append(e.pools, addedNodes{name: name, taken: Resources{}})
	}
	pool := &e.pools[at]
	pool.nodes += r.count
	for col, amount := range n.row(r.row) {
		if taken := amount - r.low[col]; taken > 0 {
			pool.taken[n.names[col]] = addUpTo(pool.taken[n.names[col]], mulUpTo(taken, r.count))
		}
	}
}

// compare is above 0 if the nodes are better than others: they cost less, or as much and are fewer. Without prices only
// the number counts.
func (e *expansion) compare(other *expansion) int {
	if e == nil || other == nil {
		return 0
	}
	return cmp.Or(cmp.Compare(other.price, e.price), cmp.Compare(other.nodes, e.nodes))
}

// String says it in words: "would add 2 nodes of a3-highgpu".
func (e *expansion) String() string {
	var pools []string
	for _, pool := range e.pools {
		pools = append(pools, fmt.Sprintf("%d %s of %s", pool.nodes, plural("node", pool.nodes), pool.name))
	}
	words := "would add " + strings.Join(pools, " and ")
	if e.price > 0 {
		words += fmt.Sprintf(" for %.6g per hour", e.price)
	}
	return words
}

// fewestAdded is the score AddedNodes.
func fewestAdded(s *scores, _ *v1alpha1.Score, w *Worker) points {
	if e := s.filters.expansionOn(w); e != nil {
		return percent(1 / float64(1+e.nodes))
	}
	return 100 * point
}
