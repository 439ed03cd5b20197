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
// Initializers run before the other pods, so each phase has all nodes for itself. Its pods need their places at once.
//
// If a gang fits, each pod has a place. If Fit says that a gang does not fit, that is exact for pods that are alike
// (equal requests and node constraints, in one or more PodSets), and for a phase with a PodSet that does not fit alone.
// For PodSets that each fit alone the problem is bin packing. Fit then places them first-fit-decreasing in several
// orders (see placement.search), and may miss a gang that a full search places. TestFitMissRate compares the two.
func (n *Nodes) Fit(podSets []v1alpha1.PodSet) *Shortfall {
	g := newGang(podSets)
	if n = withPorts(n, g.hostPorts); g.fits(n) {
		return nil
	}
	return g.shortfall(n)
}

// fits is Fit without the reason. Afterwards the gang is bound to n.
func (g *gang) fits(n *Nodes) bool {
	if len(g.hostPorts) > 0 && !portsAreFree(g, n) {
		defer g.bind(n)
		n = withPorts(n, g.hostPorts)
	}
	g.bind(n)
	if !g.fitsQuota(n) {
		return false
	}
	if n.queued().only() {
		return true
	}
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
		return true // All pods fit even if each is as large as the largest. This check is cheap.
	}
	if g.fitsApart(n, ph) {
		return true
	}
	g.place.begin(n)
	return g.place.search(g, ph.pods)
}

// fitsApart says whether each pod can have its own node, which is common where there is room. It sorts the kinds by the
// number of nodes with room for one pod. Each kind needs as many nodes as it and the kinds before it have pods.
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

// nodesFor is a number of pods of one kind, and the number of nodes that have room for such a pod.
type nodesFor struct{ pods, nodes int64 }

// room counts the pods that have a place on nodes that admit the kinds, if there are no other pods. It stops at need.
func (g *gang) room(n *Nodes, kinds []pods, p *pods) int64 {
	most := p.need
	if p.takesPorts {
		most = 1 // A node has a host port for one of them.
	}
	return g.count(n, kinds, p.bound, p.need, most)
}

// count counts the places for a pod on the nodes that admit the kinds, up to most on one node. It stops at need.
func (g *gang) count(n *Nodes, kinds []pods, pod []demand, need, most int64) (found int64) {
	if n == nil || lacksFirst(n.largest, pod) {
		return 0
	}
	admits := g.admits(n, &kinds[0])
	for r, free := range n.scarcest(pod) {
		// The cheap check is first: on a busy worker most nodes have too little free, and a decision spends its time here.
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

// scarcest returns what each row has free of the pod's first resource, or the counts if the pod requests nothing.
func (n *Nodes) scarcest(pod []demand) []int64 {
	if len(pod) == 0 {
		return n.counts
	}
	return n.amountsOf(pod[0].col)
}

// othersAdmit says whether a class takes all kinds of pods but the first one, which it does not check.
func (g *gang) othersAdmit(n *Nodes, kinds []pods, class int) bool {
	for i := 1; i < len(kinds); i++ {
		if !g.admits(n, &kinds[i])[class] {
			return false
		}
	}
	return true
}

// lacksFirst says whether there is too little of the first resource (GPUs, if requested). It is a fast form of perNode.
func lacksFirst(free []int64, pod []demand) bool {
	return len(pod) > 0 && (pod[0].col < 0 || free[pod[0].col] < pod[0].amount)
}

// perNode returns how many pods of the demand, up to a limit, have a place on a node with these amounts free.
func perNode(free []int64, pod []demand, limit int64) int64 {
	for _, d := range pod {
		if d.col < 0 || free[d.col] < d.amount {
			return 0
		}
		// A division costs as much as the rest of the loop.
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
