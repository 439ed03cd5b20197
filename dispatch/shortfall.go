// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Shortfall is what a gang lacks on a worker.
type Shortfall struct {
	// PodSet is the first PodSet that does not fit alone. Empty: each PodSet fits alone, but not all together.
	PodSet string
	// Message says what is lacking, so that a user can act on it. The same nodes give the same message.
	Message string
}

// shortfall explains why the gang does not fit. It computes everything again, because only people read the result.
func (g *gang) shortfall(n *Nodes) *Shortfall {
	n = withPorts(n, g.hostPorts)
	g.bind(n)
	if lack := g.lackQuota(n); lack != nil {
		lack.Message = Cut(lack.Message + g.assumption(n))
		return lack
	}
	if n.queued().only() {
		return nil
	}
	kinds := 0
	for _, ph := range g.phases {
		kinds += len(ph.pods)
	}
	for _, ph := range g.phases {
		for i := range ph.pods {
			p := &ph.pods[i]
			if g.room(n, ph.pods[i:i+1], p) >= p.need {
				continue
			}
			message := g.lack(n, p)
			if kinds > 1 {
				message = strings.Join(p.podSets, " and ") + ": " + message
			}
			return &Shortfall{PodSet: p.podSets[0], Message: Cut(message)}
		}
	}
	for i := range g.phases {
		if ph := &g.phases[i]; len(ph.pods) > 1 && !g.fitsTogether(n, ph) {
			return &Shortfall{Message: Cut(g.lackTogether(n, ph))}
		}
	}
	return nil
}

// lackTogether says why pods that fit alone do not fit together.
func (g *gang) lackTogether(n *Nodes, ph *phase) string {
	var names, lacks []string
	for i := range ph.pods {
		names = append(names, ph.pods[i].podSets...)
	}
	slices.Sort(names)
	for name, amount := range ph.sum {
		col := g.cols[name]
		switch {
		case col < 0 || amount <= n.total[col]:
		case hostports.Is(g.names[name]):
			nodes := (amount-n.total[col]-1)/hostports.Capacity(g.names[name]) + 1
			lacks = append(lacks, fmt.Sprintf("%d %s with %s free", nodes, plural("node", nodes), hostports.Words(g.names[name])))
		default:
			lacks = append(lacks, fmt.Sprintf("%s (%s needed, %s free)", format(g.names[name], amount-n.total[col]),
				formatAmount(g.names[name], amount), formatAmount(g.names[name], n.total[col])))
		}
	}
	all := strings.Join(names, " and ")
	if len(lacks) > 0 {
		return all + " run at the same time and lack " + strings.Join(lacks, " and ")
	}
	p, left := g.place.remainder(g, ph.pods)
	return fmt.Sprintf("%s each fit by themselves, but not at the same time; %d more %s with at least %s free for %s would do",
		all, left, plural("node", left), g.list(p.bound), strings.Join(p.podSets, " and "))
}

// list formats what one pod requests of some resources. It names pod slots only if there is nothing else.
func (g *gang) list(pod []demand) string {
	var amounts []string
	for _, d := range pod {
		if g.names[d.name] != corev1.ResourcePods || len(pod) == 1 {
			amounts = append(amounts, format(g.names[d.name], d.amount))
		}
	}
	slices.Sort(amounts)
	return strings.Join(amounts, " and ")
}

// lack says why pods do not fit even alone. It names the first cause that it finds: node selector and affinity,
// resources that no matching node has, taints, free amounts.
func (g *gang) lack(n *Nodes, p *pods) string {
	all := populated(n)
	if len(all) == 0 {
		return "the worker has no node that takes pods"
	}
	matching, why := g.matching(n, p, all)
	if len(matching) == 0 {
		return why
	}
	for _, d := range p.bound {
		has := func(c int) bool { return d.col >= 0 && n.peak(c)[d.col] != absent }
		name := "the resource " + string(g.names[d.name])
		switch {
		case v1alpha1.IsDeviceClaim(g.names[d.name]):
			name = "devices for a claim of " + v1alpha1.WordsOfDeviceClaim(g.names[d.name])
		case v1alpha1.IsClaimed(g.names[d.name]):
			name = DisplayName(g.names[d.name])
		}
		switch {
		case !slices.ContainsFunc(all, has):
			return "no node has " + name + omittedNote(n) + unlistedNote(n, g.names[d.name])
		case !slices.ContainsFunc(matching, has):
			return "no node that matches its node selector has " + name
		}
	}
	// The message does not mention nodes without the GPUs that the pods need.
	nodes := "node"
	if first := p.bound; len(first) > 0 && IsExtended(g.names[first[0].name]) {
		matching = slices.DeleteFunc(matching, func(c int) bool { return n.peak(c)[first[0].col] == absent })
		nodes += " with " + DisplayName(g.names[first[0].name])
	}
	var taints []string
	takes := slices.DeleteFunc(slices.Clone(matching), func(c int) bool {
		taint := p.repels(&n.classes[c])
		if taint != nil {
			taints = append(taints, taint.ToString())
		}
		return taint != nil
	})
	if len(takes) == 0 {
		if p.constrained() {
			nodes += " that matches its node selector"
		}
		slices.Sort(taints)
		return "every " + nodes + " has taint " + list(slices.Compact(taints), " or ")
	}
	return g.lackFree(n, p, takes) + nodesNote(p, n.in(takes), n.in(matching)-n.in(takes)) + addedNote(n, takes) +
		g.portsNote(n, p, takes)
}

// matching returns the classes that the pods' node selector and affinity match, or why there are none.
func (g *gang) matching(n *Nodes, p *pods, all []int) (classes []int, why string) {
	var invalid error
	for _, c := range all {
		if !p.selects(&n.classes[c]) {
			continue
		}
		ok, err := g.matchesAffinity(p, &n.classes[c])
		if err != nil {
			invalid = err
		}
		if ok {
			classes = append(classes, c)
		}
	}
	var terms []string
	for _, l := range p.nodeSelector {
		terms = append(terms, l.key+"="+l.value)
	}
	switch selector := list(terms, ","); {
	case invalid != nil:
		return classes, "its nodeAffinity is invalid: " + invalid.Error()
	case p.affinity == nil:
		return classes, "no node matches nodeSelector " + selector
	case len(terms) == 0:
		return classes, "no node matches its nodeAffinity"
	default:
		return classes, "no node matches its nodeAffinity and nodeSelector " + selector
	}
}

// lackFree says what is not free on the nodes that take the pods, and how many more nodes would be enough.
func (g *gang) lackFree(n *Nodes, p *pods, takes []int) string {
	found := n.roomOn(takes, p.bound, p.need)
	short := n.short(takes, p)
	if p.need == 1 {
		needs := "needs a node with " + g.list(short) + " free; "
		if len(short) > 1 {
			return needs + "no such node"
		}
		if name := n.names[short[0].col]; hostports.Is(name) || v1alpha1.IsDeviceClaim(name) {
			return needs + "no such node"
		}
		largest := int64(0)
		for _, c := range takes {
			largest = max(largest, n.peak(c)[short[0].col])
		}
		return needs + "the most on one node is " + format(n.names[short[0].col], largest)
	}
	missing := p.need - found
	room := fmt.Sprintf("; it has room for %d of %d pods", found, p.need)
	if len(short) == 1 && hostports.Is(g.names[short[0].name]) {
		return fmt.Sprintf("lacks %d %s with %s free", missing, plural("node", missing), g.list(short)) + room
	}
	if len(short) > 1 {
		return fmt.Sprintf("lacks %d %s with at least %s free", missing, plural("node", missing), g.list(short)) + room
	}
	name, amount := g.names[short[0].name], short[0].amount
	more := fmt.Sprintf("%d more such %s", missing, plural("node", missing))
	if missing > 1 {
		more = "at most " + more // A node that comes may have room for several pods.
	}
	return fmt.Sprintf("lacks %s on nodes with at least %s free; %s would do", format(name, mulUpTo(amount, missing)),
		formatAmount(name, amount), more) + room
}

// mismatched is true if the nodes cannot take some of the pods even if nothing else ran there, so that neither ends of
// jobs nor more nodes of these kinds would help: no node matches the pods and has all resources that they request.
func (g *gang) mismatched(n *Nodes) bool {
	all := populated(n)
	if len(all) == 0 || n.queued().only() {
		return false
	}
	if g.bind(n); g.lackQuota(n) != nil {
		return false // That is what the message says.
	}
	for i := range g.phases {
		for j := range g.phases[i].pods {
			p := &g.phases[i].pods[j]
			admits := g.admits(n, p)
			if !slices.ContainsFunc(all, func(c int) bool { return admits[c] && hasAll(n, c, p.bound) }) {
				return true
			}
		}
	}
	return false
}

// hasAll is true if the nodes of a class have all resources that a pod requests, free or not.
func hasAll(n *Nodes, class int, pod []demand) bool {
	return !slices.ContainsFunc(pod, func(d demand) bool { return d.col < 0 || n.peak(class)[d.col] == absent })
}

// short returns what the pods lack: each resource that alone is not enough, or without which more pods would have room.
//
// The room of a row is the least that it has of any resource. Without one resource, the room is the same if in each row
// another remaining resource has as little. So one scan of all rows is enough for each resource.
func (n *Nodes) short(takes []int, p *pods) []demand {
	rows := n.rowsOf(takes)
	// Of each row: the room, and the number of resources that give it.
	least, having := make([]int64, len(rows)), make([]int, len(rows))
	enough := make([]bool, len(p.bound))
	for i := range p.bound {
		alone := int64(0)
		for at, r := range rows {
			per := perNode(n.row(r), p.bound[i:i+1], p.need)
			alone = min(p.need, addUpTo(alone, mulUpTo(per, n.counts[r])))
			switch {
			case i == 0 || per < least[at]:
				least[at], having[at] = per, 1
			case per == least[at]:
				having[at]++
			}
		}
		enough[i] = alone >= p.need
	}
	needed, left := make([]bool, len(p.bound)), len(p.bound)
	for i := len(p.bound) - 1; i >= 0; i-- {
		lean := make([]int, 0, len(rows)) // The rows in which this resource has the least.
		for at, r := range rows {
			if perNode(n.row(r), p.bound[i:i+1], p.need) == least[at] {
				lean = append(lean, at)
			}
		}
		if needed[i] = left == 1 || slices.ContainsFunc(lean, func(at int) bool { return having[at] < 2 }); needed[i] {
			continue
		}
		left--
		for _, at := range lean {
			having[at]--
		}
	}
	var short []demand
	for i, d := range p.bound {
		if needed[i] || !enough[i] {
			short = append(short, d)
		}
	}
	return short
}

func (n *Nodes) rowsOf(classes []int) []int {
	var rows []int
	for _, c := range classes {
		for r := n.classes[c].first; r < n.classes[c].end; r++ {
			rows = append(rows, r)
		}
	}
	return rows
}

// omittedNote says that some resources are not counted.
func omittedNote(n *Nodes) string {
	if n == nil || n.omitted == 0 {
		return ""
	}
	return fmt.Sprintf(", of the %d that are counted; the nodes have %d", len(n.names), len(n.names)+n.omitted)
}

// unlistedNote says what to do about a resource that no node lists, because the pool is scaled to zero whose nodes have
// it, or because a scheduler extender manages it.
func unlistedNote(n *Nodes, name corev1.ResourceName) string {
	if !IsExtended(name) || v1alpha1.IsClaimed(name) || n.omitted > 0 {
		return ""
	}
	return "; if the worker can add nodes that have it, describe them in spec.expandable of the WorkerCluster; " +
		"if a scheduler extender manages it there, add it to spec.ignoredResources"
}

// nodesNote says how many nodes there are for the pods.
func nodesNote(p *pods, count, tainted int64) string {
	note := fmt.Sprintf(", %d %s", count, plural("node", count))
	switch {
	case p.constrained() && count == 1:
		note += " matches its node selector"
	case p.constrained():
		note += " match its node selector"
	default:
		note += " in all"
	}
	if tainted > 0 {
		note += fmt.Sprintf(", %d more with a taint that it does not tolerate", tainted)
	}
	return note
}

// addedNote says how many of the nodes of some classes are not there.
func addedNote(n *Nodes, classes []int) string {
	added := n.in(slices.DeleteFunc(slices.Clone(classes), func(c int) bool { return n.classes[c].added == "" }))
	if added == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of which the worker would have to add", added)
}

func (p *pods) constrained() bool { return len(p.nodeSelector) > 0 || p.affinity != nil }

func populated(n *Nodes) []int {
	var populated []int
	if n != nil {
		for i := range n.classes {
			if n.classes[i].first < n.classes[i].end {
				populated = append(populated, i)
			}
		}
	}
	return populated
}

func (n *Nodes) in(classes []int) int64 {
	var count int64
	for _, c := range classes {
		for r := n.classes[c].first; r < n.classes[c].end; r++ {
			count = addUpTo(count, n.counts[r])
		}
	}
	return count
}

// roomOn returns how many pods have a place on some classes, up to need.
func (n *Nodes) roomOn(classes []int, pod []demand, need int64) (found int64) {
	for _, c := range classes {
		for r := n.classes[c].first; r < n.classes[c].end; r++ {
			per := perNode(n.row(r), pod, need)
			found = min(need, addUpTo(found, mulUpTo(per, n.counts[r])))
		}
	}
	return found
}
