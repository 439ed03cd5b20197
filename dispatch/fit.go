// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Fit says what the gang lacks on the nodes as they are, or nil if it fits.
//
// Initializers run before the others, so each of the two phases has all nodes for itself. Within a phase all pods must have
// their place at the same time.
//
// If it says that a gang fits, there is a place for every pod. The opposite is exact too for pods that are alike (equal
// requests and node constraints, in one or more PodSets), and for a phase of which already one PodSet does not fit. What
// remains are PodSets that fit each by themselves: for them a search is bin packing, so they are placed first-fit-decreasing
// in several orders (see placement.search), and a gang can be missed that a full search would place. TestFitMissRate compares the two.
func (n *Nodes) Fit(podSets []v1alpha1.PodSet) *Shortfall {
	g := newGang(podSets)
	if g.fits(n) {
		return nil
	}
	return g.shortfall(n)
}

// fits is Fit without the reason.
func (g *gang) fits(n *Nodes) bool {
	g.bind(n)
	for _, ph := range g.phases {
		for i := range ph.pods {
			if kind := ph.pods[i : i+1]; g.room(n, kind, &kind[0]) < kind[0].need {
				return false
			}
		}
	}
	for i := range g.phases {
		if ph := &g.phases[i]; len(ph.pods) > 1 && !g.fitsTogether(n, ph) {
			return false
		}
	}
	return true
}

// fitsTogether says whether pods that fit by themselves have their places at the same time.
func (g *gang) fitsTogether(n *Nodes, ph *phase) bool {
	for name, amount := range ph.sum {
		if col := g.cols[name]; col >= 0 && amount > n.total[col] {
			return false
		}
	}
	if g.room(n, ph.pods, &ph.upper) == ph.upper.need {
		return true // Even if all pods were as large as the largest, which is a cheap question.
	}
	if g.fitsApart(n, ph) {
		return true
	}
	g.place.begin(n)
	return g.place.search(g, ph.pods)
}

// fitsApart says whether each pod can have a node to itself, which most often is so where there is room at all: if the kinds are put in
// order by the number of nodes that have room for a pod, each has as many as it and those before it have pods.
func (g *gang) fitsApart(n *Nodes, ph *phase) bool {
	g.nodes = g.nodes[:0]
	for i := range ph.pods {
		p := &ph.pods[i]
		g.nodes = append(g.nodes, nodesFor{pods: p.need, nodes: g.count(n, ph.pods[i:i+1], p.bound, ph.upper.need, 1)})
	}
	slices.SortFunc(g.nodes, func(a, b nodesFor) int { return cmp.Compare(a.nodes, b.nodes) })
	var pods int64
	for _, kind := range g.nodes {
		if pods += kind.pods; kind.nodes < pods {
			return false
		}
	}
	return true
}

// nodesFor is for how many pods of a kind there are how many nodes.
type nodesFor struct{ pods, nodes int64 }

// room returns for how many of the pods there is a place on the nodes that admit the kinds, if there were no other pods. It stops
// counting at what is needed.
func (g *gang) room(n *Nodes, kinds []pods, p *pods) int64 {
	return g.count(n, kinds, p.bound, p.need, p.need)
}

// count counts the places for a pod on the nodes that admit the kinds, at most so many on one node. It stops at what is needed.
func (g *gang) count(n *Nodes, kinds []pods, pod []demand, need, most int64) (found int64) {
	if n == nil || lacksFirst(n.largest, pod) {
		return 0
	}
	admits := g.admits(n, &kinds[0])
	for r, free := range n.scarcest(pod) {
		// The cheap question first: on a busy worker most nodes have too little free. This is where a decision spends its time.
		if len(pod) > 0 && free < pod[0].amount || !admits[n.class[r]] || !g.othersAdmit(n, kinds, n.class[r]) {
			continue
		}
		if per := perNode(n.row(r), pod, most); per > 0 {
			if found = addUpTo(found, mulUpTo(per, n.counts[r])); found >= need {
				return need
			}
		}
	}
	return found
}

// scarcest returns what each row has free of the first resource of a pod, or the counts if it requests nothing.
func (n *Nodes) scarcest(pod []demand) []int64 {
	if len(pod) == 0 {
		return n.counts
	}
	return n.amountsOf(pod[0].col)
}

// othersAdmit says whether a class takes each of the kinds of pods but the first.
func (g *gang) othersAdmit(n *Nodes, kinds []pods, class int) bool {
	for i := 1; i < len(kinds); i++ {
		if !g.admits(n, &kinds[i])[class] {
			return false
		}
	}
	return true
}

// lacksFirst says whether there is too little of the first resource, which is the GPUs where there are any. It is perNode for
// those in a hurry.
func lacksFirst(free []int64, pod []demand) bool {
	return len(pod) > 0 && (pod[0].col < 0 || free[pod[0].col] < pod[0].amount)
}

// perNode returns how many pods of the demand, up to a limit, have a place on a node with these amounts free.
func perNode(free []int64, pod []demand, limit int64) int64 {
	for _, d := range pod {
		if d.col < 0 || free[d.col] < d.amount {
			return 0
		}
		// A division costs as much as all the rest.
		switch amount := free[d.col]; {
		case limit <= 1:
		case amount-d.amount < d.amount:
			limit = 1
		default:
			limit = min(limit, amount/d.amount)
		}
	}
	return limit
}
