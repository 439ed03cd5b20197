// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/hostports"
)

// withPorts returns the nodes with a column for each of the host ports. Nodes have columns only for ports that are taken
// somewhere, so that jobs without host ports cost nothing. Code that places pods must call it before gang.bind. Scores
// do without: where a port has no column, bind leaves it out.
func withPorts(n *Nodes, ports []corev1.ResourceName) *Nodes {
	if n == nil || len(ports) == 0 {
		return n
	}
	missing := slices.DeleteFunc(slices.Clone(ports), func(name corev1.ResourceName) bool { return n.column(name) >= 0 })
	if len(missing) == 0 {
		return n
	}
	wide := *n
	wide.names = slices.Sorted(slices.Values(slices.Concat(n.names, missing)))
	wide.classes = slices.Clone(n.classes)
	from := make([]int, len(wide.names))
	for i, name := range wide.names {
		from[i] = n.column(name)
	}
	others := n.column(hostports.Others)
	rows := make([]row, len(n.counts))
	for r := range rows {
		narrow := n.row(r)
		free := make([]int64, len(from))
		for i, col := range from {
			switch {
			case col >= 0:
				free[i] = narrow[col]
			case others < 0 || narrow[others] == hostports.Capacity(hostports.Others):
				free[i] = hostports.Capacity(wide.names[i])
			}
		}
		rows[r] = row{class: n.class[r], free: free, count: n.counts[r]}
	}
	wide.setRows(rows)
	return &wide
}

// portsAreFree says whether the gang fits as if each node had its ports for one pod of a kind: no pod of the worker takes
// them, and the kinds of its pods do not run together. Most gangs are like that, and columns cost more than all the rest.
func portsAreFree(g *gang, n *Nodes) bool {
	for i := range g.phases {
		if len(g.phases[i].pods) > 1 {
			return false
		}
	}
	isTaken := func(name corev1.ResourceName) bool { return n.column(name) >= 0 }
	return !isTaken(hostports.Others) && !slices.ContainsFunc(g.hostPorts, isTaken)
}

// foldPorts returns the nodes with at most hostports.Max columns for host ports, and Others for the rest: those that the
// fewest nodes have free stay. Each job that is placed can bring other ports, and the time of a decision grows with the
// number of columns.
func foldPorts(n *Nodes) *Nodes {
	if len(n.names) <= hostports.Max {
		return n // Every reservation comes here.
	}
	ports := slices.DeleteFunc(slices.Clone(n.names), func(name corev1.ResourceName) bool {
		return !hostports.Is(name) || name == hostports.Others
	})
	if len(ports) <= hostports.Max {
		return n
	}
	share := func(name corev1.ResourceName) float64 {
		return float64(n.total[n.column(name)]) / float64(hostports.Capacity(name))
	}
	slices.SortStableFunc(ports, func(a, b corev1.ResourceName) int { return cmp.Compare(share(a), share(b)) })
	groups := n.Groups()
	for i := range groups {
		for _, name := range ports[hostports.Max:] {
			if groups[i].Free[name] < hostports.Capacity(name) {
				groups[i].Free[hostports.Others] = 0
			}
			delete(groups[i].Free, name)
		}
	}
	folded := NewNodes(groups)
	folded.omitted, folded.quota, folded.ignored = n.omitted, n.quota, n.ignored
	return folded
}

// portsNote says on how many nodes the host ports of a pod are taken, and that its pods need a node each.
func (g *gang) portsNote(n *Nodes, p *pods, takes []int) string {
	note, apart, nodes := "", false, n.in(takes)
	for _, d := range p.bound {
		if !hostports.Is(g.names[d.name]) {
			continue
		}
		var taken int64
		for _, r := range n.rowsOf(takes) {
			if n.row(r)[d.col] < d.amount {
				taken = addUpTo(taken, n.counts[r])
			}
		}
		if taken > 0 {
			note += fmt.Sprintf("; %s is taken on %d %s", hostports.Words(g.names[d.name]), taken, plural("node", taken))
		}
		apart = apart || p.need > nodes-taken
	}
	if apart && p.need > 1 {
		note += "; because of the host port, each pod needs a node of its own"
	}
	return note
}
