// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch/accelerators"
)

// grouping says which labels distinguish nodes. GPUs, taints and allocatable amounts distinguish nodes too. Of memory
// only the order of magnitude counts, because hardly two real nodes have the same amount.
type grouping struct {
	// shown has the labels to show. telling has the labels among them that differ between nodes.
	shown   map[string]bool
	telling []string
	table   accelerators.Table
}

type labelUse struct {
	key string
	// values counts the nodes by the label's value. nodes is how many nodes have the label.
	values map[string]int
	nodes  int
}

// chooseGrouping leaves out labels that name single nodes. While there are more groups than can be shown, it also
// leaves out the label with the most values.
func chooseGrouping(nodes []*capacity.NodeState, table accelerators.Table) *grouping {
	uses, all := labelUses(nodes)
	kept := slices.DeleteFunc(uses, func(use *labelUse) bool { return use.namesNodes(table) })
	slices.SortFunc(kept, func(a, b *labelUse) int {
		return cmp.Or(cmp.Compare(len(b.values), len(a.values)), strings.Compare(a.key, b.key))
	})
	if whole := newGrouping(kept, all, table); len(whole.apply(nodes)) <= groupLimit {
		return whole
	}
	// A grouping with fewer labels never has more groups.
	without := sort.Search(len(kept), func(n int) bool { return len(newGrouping(kept[n:], all, table).apply(nodes)) <= groupLimit })
	return newGrouping(kept[without:], all, table)
}

// labelUses returns the use of each label, and the number of nodes.
func labelUses(nodes []*capacity.NodeState) (uses []*labelUse, all int) {
	byKey := map[string]*labelUse{}
	for _, node := range nodes {
		all += node.Count
		for key, value := range node.Labels {
			use := byKey[key]
			if use == nil {
				use = &labelUse{key: key, values: map[string]int{}}
				byKey[key] = use
			}
			use.values[value] += node.Count
			use.nodes += node.Count
		}
	}
	return slices.Collect(maps.Values(byKey)), all
}

// namesNodes is true for a label that distinguishes single nodes: each of at least three nodes has its own value. Known
// labels about places and kinds of nodes do not count.
func (u *labelUse) namesNodes(table accelerators.Table) bool {
	switch {
	case u.key == corev1.LabelHostname:
		return true
	case strings.HasPrefix(u.key, "topology.kubernetes.io/"), u.key == corev1.LabelInstanceTypeStable, table.IsProduct(u.key),
		strings.HasSuffix(u.key, "/gpu.clique"):
		return false
	}
	return u.nodes >= 3 && len(u.values) == u.nodes
}

// newGrouping takes labels in the order of their number of values, most first. It shows the last ones that fit.
func newGrouping(uses []*labelUse, nodes int, table accelerators.Table) *grouping {
	g := &grouping{shown: make(map[string]bool, len(uses)), table: table}
	for _, use := range uses[max(0, len(uses)-labelLimit):] {
		g.shown[use.key] = true
		if len(use.values) > 1 || use.nodes < nodes {
			g.telling = append(g.telling, use.key)
		}
	}
	return g
}

// apply returns the nodes by group.
func (g *grouping) apply(nodes []*capacity.NodeState) map[string][]*capacity.NodeState {
	groups := map[string][]*capacity.NodeState{}
	for _, node := range nodes {
		key := g.key(node)
		groups[key] = append(groups[key], node)
	}
	return groups
}

// key is equal only for nodes of the same group.
func (g *grouping) key(node *capacity.NodeState) string {
	var b strings.Builder
	gpu, _ := g.table.Main(node.Allocatable)
	fmt.Fprintf(&b, "%s/%s\n", g.table.Product(gpu, node.Labels), gpu)
	for _, name := range slices.Sorted(maps.Keys(node.Allocatable)) {
		amount := node.Allocatable[name]
		if inBytes(name) {
			amount = int64(bits.Len64(uint64(max(amount, 0))))
		}
		fmt.Fprintf(&b, "%s=%d\n", name, amount)
	}
	for _, taint := range capacity.HardTaints(node.Taints) {
		fmt.Fprintln(&b, taint.ToString())
	}
	for _, key := range g.telling {
		if value, has := node.Labels[key]; has {
			fmt.Fprintf(&b, "%s=%s\n", key, value)
		}
	}
	return b.String()
}

func (g *grouping) labelsOf(node *capacity.NodeState) map[string]string {
	var labels map[string]string
	for key, value := range node.Labels {
		if g.shown[key] && len(key) <= qualifiedLimit && len(value) <= valueLimit {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	return labels
}

func inBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
