// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Hold returns what jobs behind a gang may use while the gang waits for room on the nodes, so that they do not overtake
// it for ever. empty is the same worker as if no job ran there. The gang must fit on it, else nothing is gained.
//
// Hold takes off the gang's pods that have room now, as Reserve does. For pods without a place, it closes as many nodes
// as they need. These are nodes that could take the pods if they were empty. It begins with the nodes on which the
// largest part of a pod has room, because they will be free soonest. A closed node has nothing free. Nodes of the same
// labels and taints may differ in size, and Hold does not know which is which. So it closes enough nodes for the worst
// case.
//
// If new jobs use only what Hold returns, the gang keeps all its places, and it fits when the jobs on the closed nodes
// have ended. The worker's scheduler does not know of Hold, and may put a new pod on a closed node. A scheduler that
// scores nodes by MostAllocated rarely does that. For other schedulers there is Close.
func (n *Nodes) Hold(podSets []v1alpha1.PodSet, empty *Nodes) *Nodes {
	if n != nil && n.quota != nil && n.quota.whole != nil {
		return n.quota.hold(podSets, func(whole *Nodes) *Nodes { return whole.Hold(podSets, empty) })
	}
	g := newGang(podSets)
	if n == nil || len(g.phases) == 0 {
		return n
	}
	g.hold(withPorts(n, g.hostPorts), empty)
	return g.place.rest()
}

// Close returns what jobs behind a gang may use, wherever the worker's scheduler puts their pods. It closes all nodes
// that a pod of the gang could use if they were empty.
func (n *Nodes) Close(podSets []v1alpha1.PodSet, empty *Nodes) *Nodes {
	if n != nil && n.quota != nil && n.quota.whole != nil {
		return n.quota.hold(podSets, func(whole *Nodes) *Nodes { return whole.Close(podSets, empty) })
	}
	g := newGang(podSets)
	if n == nil || len(g.phases) == 0 {
		return n
	}
	n = withPorts(n, g.hostPorts)
	g.bind(n)
	p := &g.place
	p.begin(n)
	sizes := n.sizes(empty)
	for i := range g.phases {
		p.restart()
		p.closeAll(g, g.phases[i].pods, sizes)
		p.nextPhase()
	}
	return p.rest()
}

// Places counts the gang's pods that have a place on the nodes as they are. Pods of both phases may share a place.
// All pods have one if only the quota of a queue limits some jobs, and no job looks at the nodes.
func (n *Nodes) Places(podSets []v1alpha1.PodSet) int64 {
	if n == nil {
		return 0
	}
	if n.boundless() {
		return podsOf(podSets)
	}
	g := newGang(podSets)
	n = withPorts(n, g.hostPorts)
	g.bind(n)
	var places int64
	for i := range g.phases {
		ph := &g.phases[i]
		if len(ph.pods) == 1 {
			places += g.room(n, ph.pods, &ph.pods[0])
			continue
		}
		g.place.begin(n)
		places += ph.upper.need - g.place.most(g, ph.pods)
	}
	return places
}

// hold places the gang's pods that have room, and closes nodes for the other pods.
func (g *gang) hold(n, empty *Nodes) {
	g.bind(n)
	p := &g.place
	p.begin(n)
	sizes := n.sizes(empty)
	for i := range g.phases {
		p.most(g, g.phases[i].pods)
		p.closeNodes(g, g.phases[i].pods, sizes)
		p.nextPhase()
	}
}

// size is a number of nodes of a class that have the same amounts if no job runs there.
type size struct {
	free  []int64
	count int64
}

// sizes returns for each class of n the nodes that it would have without jobs, in the columns of n.
func (n *Nodes) sizes(empty *Nodes) [][]size {
	sizes := make([][]size, len(n.classes))
	cols := make([]int, len(n.names))
	for i, name := range n.names {
		cols[i] = empty.column(name)
	}
	for i := range n.classes {
		at := classLike(empty, n, i)
		if at < 0 {
			continue
		}
		for r := empty.classes[at].first; r < empty.classes[at].end; r++ {
			free := n.amounts(nil)
			for i, col := range cols {
				if col >= 0 {
					free[i] = empty.row(r)[col]
				}
			}
			sizes[i] = append(sizes[i], size{free: free, count: empty.counts[r]})
		}
	}
	return sizes
}

// classLike returns the class that has the labels and taints of a class of another worker, or -1.
func classLike(n, other *Nodes, class int) int {
	if n == nil {
		return -1
	}
	if n.shape == other.shape {
		return class
	}
	c := &other.classes[class]
	for i := range n.classes {
		if n.classes[i].added == c.added && maps.Equal(n.classes[i].labels, c.labels) && slices.Equal(n.classes[i].taints, c.taints) {
			return i
		}
	}
	return -1
}

// closeNodes closes nodes for the pods that have no place.
func (p *placement) closeNodes(g *gang, all []pods, sizes [][]size) {
	enough := true
	for _, i := range p.order {
		enough = p.closeFor(g, all[i:i+1], p.left[i], sizes) && enough
	}
	// Pods of one kind are on the only nodes that take another kind. They find their places when no job is left there.
	if !enough {
		p.closeAll(g, all, sizes)
	}
}

// closeAll closes all nodes that one of the pods could use.
func (p *placement) closeAll(g *gang, all []pods, sizes [][]size) {
	for i := range all {
		for _, at := range p.soonest(g, all[i:i+1], sizes) {
			p.closeSome(at, nil, take{nodes: p.runs[at].count})
		}
	}
}

// closeFor closes nodes until pods of one kind will have a place. It says whether there are enough nodes.
func (p *placement) closeFor(g *gang, kind []pods, left int64, sizes [][]size) bool {
	if left == 0 {
		return true
	}
	pod := kind[0].bound
	vacant := make([][]size, len(sizes)) // The sizes of nodes not looked at.
	for i := range sizes {
		vacant[i] = slices.Clone(sizes[i])
	}
	for _, at := range p.soonest(g, kind, sizes) {
		row := p.nodes.row(p.runs[at].row)
		for nodes := p.runs[at].count; nodes > 0 && left > 0; {
			s, extra, hope := p.worst(&p.runs[at], vacant[p.runs[at].class], pod)
			if s == nil {
				break
			}
			count := min(nodes, s.count)
			if extra > 0 {
				count = min(count, (left-1)/extra+1)
			}
			if extra > 0 || hope && !slices.Equal(row, s.free) {
				p.closeSome(at, pod, take{nodes: count, pods: min(left, extra)})
				left -= min(left, mulUpTo(count, extra))
			}
			s.count -= count
			nodes -= count
		}
	}
	return left == 0
}

// soonest returns the runs that could take pods if they were empty, in the order in which they will be free. The order
// follows from the nodes as they are: a node that gets freer never moves back.
func (p *placement) soonest(g *gang, kind []pods, sizes [][]size) []int {
	pod, admits := kind[0].bound, g.admits(p.nodes, &kind[0])
	var runs []int
	for i := range p.runs {
		class := p.runs[i].class
		if admits[class] && slices.ContainsFunc(sizes[class], func(s size) bool { return perNode(s.free, pod, 1) > 0 }) {
			runs = append(runs, i)
		}
	}
	slices.SortFunc(runs, func(a, b int) int {
		x, y := &p.runs[a], &p.runs[b]
		part, sum := partOf(p.nodes.row(x.row), pod)
		otherPart, otherSum := partOf(p.nodes.row(y.row), pod)
		return cmp.Or(cmp.Compare(otherPart, part), cmp.Compare(otherSum, sum), cmp.Compare(x.row, y.row), slices.Compare(x.free, y.free))
	})
	return runs
}

// partOf returns how much of a pod has room on a node, by the scarcest resource and by the sum over all resources.
func partOf(free []int64, pod []demand) (scarcest, sum float64) {
	scarcest = unlimited
	for _, d := range pod {
		if free[d.col] != unlimited {
			part := float64(max(free[d.col], 0)) / float64(d.amount)
			scarcest, sum = min(scarcest, part), sum+part
		}
	}
	return scarcest, sum
}

// worst returns the possible size of the run's nodes with the fewest places for more pods, and the number of these
// places. hope says whether any size has a place. least is nil if no size is left.
func (p *placement) worst(r *run, sizes []size, pod []demand) (least *size, extra int64, hope bool) {
	free := p.nodes.row(r.row)
	for i := range sizes {
		s := &sizes[i]
		if s.count == 0 || !within(free, s.free) {
			continue
		}
		places := perNode(less(s.free, r.taken(free)), pod, unlimited)
		if hope = hope || places > 0; least == nil || places < extra {
			least, extra = s, places
		}
	}
	return least, extra, hope
}

// within says whether a node with these amounts free may have this size when it is empty.
func within(free, size []int64) bool {
	for col, amount := range free {
		if amount > size[col] || (amount == absent) != (size[col] == absent) || (amount == unlimited) != (size[col] == unlimited) {
			return false
		}
	}
	return true
}

func less(amounts, taken []int64) []int64 {
	rest := slices.Clone(amounts)
	for col := range rest {
		if rest[col] != absent && rest[col] != unlimited {
			rest[col] -= taken[col]
		}
	}
	return rest
}

// taken is what the gang takes on each node of the run, now or when the node is empty.
func (r *run) taken(row []int64) []int64 {
	if r.claim != nil {
		return r.claim
	}
	return less(row, r.free)
}

// closeSome closes some nodes of a run for the same number of pods on each.
func (p *placement) closeSome(at int, pod []demand, t take) {
	r := &p.runs[at]
	closed := *r
	closed.count, closed.free = t.nodes, make([]int64, len(r.free))
	for col, amount := range r.free {
		closed.free[col] = min(amount, 0)
	}
	closed.claim = slices.Clone(r.taken(p.nodes.row(r.row)))
	for _, d := range pod {
		closed.claim[d.col] = addUpTo(closed.claim[d.col], t.pods*d.amount)
	}
	if t.nodes == r.count {
		*r = closed
		return
	}
	r.count -= t.nodes
	p.runs = append(p.runs, closed)
}
