// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/hostports"
)

// withPorts returns the nodes with a column for each of the host ports. Nodes have columns only for ports that are taken
// somewhere, so that jobs without host ports cost nothing. Code that places pods must call it before gang.bind. Scores
// do without: where a port has no column, bind leaves it out.
func (n *Nodes) withPorts(ports []corev1.ResourceName) *Nodes {
	if n == nil {
		return nil
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
