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
)

// grouping says by which labels nodes are told apart. Besides, they are told apart by GPUs, taints, and what they have; of memory only
// by its order of magnitude, because hardly two real nodes have the same.
type grouping struct {
	// shown labels, and the part of them that not all nodes have alike.
	shown   map[string]bool
	telling []string
}

// labelUse is what is known of a label's key.
type labelUse struct {
	key string
	// values by the number of nodes that have them, and the nodes that have any.
	values map[string]int
	nodes  int
}

// chooseGrouping leaves out labels that name single nodes, and, as long as there are more groups than there is room for, the one with
// the most values.
func chooseGrouping(nodes []*capacity.NodeState) *grouping {
	uses, all := labelUses(nodes)
	kept := slices.DeleteFunc(uses, func(use *labelUse) bool { return use.namesNodes() })
	slices.SortFunc(kept, func(a, b *labelUse) int {
		return cmp.Or(cmp.Compare(len(b.values), len(a.values)), strings.Compare(a.key, b.key))
	})
	if whole := newGrouping(kept, all); len(whole.apply(nodes)) <= groupLimit {
		return whole
	}
	// Fewer labels never make more groups.
	without := sort.Search(len(kept), func(n int) bool { return len(newGrouping(kept[n:], all).apply(nodes)) <= groupLimit })
	return newGrouping(kept[without:], all)
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

// namesNodes says whether a label is there to tell single nodes apart: each of at least three has a value of its own, and it is none of
// those that are known to be about places and kinds.
func (u *labelUse) namesNodes() bool {
	switch {
	case u.key == corev1.LabelHostname:
		return true
	case strings.HasPrefix(u.key, "topology.kubernetes.io/"), u.key == corev1.LabelInstanceTypeStable, strings.HasSuffix(u.key, "/gpu.product"):
		return false
	}
	return u.nodes >= 3 && len(u.values) == u.nodes
}

// newGrouping takes labels with the most values first; of more than can be shown, the last ones are.
func newGrouping(uses []*labelUse, nodes int) *grouping {
	g := &grouping{shown: make(map[string]bool, len(uses))}
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

// key is a text that is equal only for nodes of the same group.
func (g *grouping) key(node *capacity.NodeState) string {
	var b strings.Builder
	gpu := gpuResource(node.Allocatable)
	fmt.Fprintf(&b, "%s/%s\n", product(node.Labels, gpu), gpu)
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

// inBytes says whether a resource is measured in bytes.
func inBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
