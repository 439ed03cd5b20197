// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

// coarsest is the last step of rounding: down to multiples of 2^(coarsest-1) cores, GiB and pods.
const coarsest = 16

// freeRow becomes one FreeNodes of the status.
type freeRow struct {
	free  capacity.Resources
	nodes int
	key   string
}

// freeRows says how many nodes have how much free, in at most limit rows, most GPUs first. It rounds down as little as
// needed: first everything but GPUs and similar devices. The last resort is one row with the least of everything.
func freeRows(nodes []*capacity.NodeState, gpu corev1.ResourceName, limit int) []v1alpha1.FreeNodes {
	rows := make([]freeRow, 0, len(nodes))
	for _, node := range nodes {
		rows = append(rows, newFreeRow(freeOf(node), node.Count))
	}
	alike := func(row freeRow) string { return row.key }
	exact := merge(rows, alike)
	rows = exact
	for step := 0; len(rows) > limit && step < coarsest; step++ {
		rows = merge(rounded(exact, step), alike)
	}
	if len(rows) > limit && gpu != "" {
		rows = merge(exact, func(row freeRow) string { return fmt.Sprint(row.free[gpu]) })
	}
	if len(rows) > limit {
		rows = merge(exact, func(freeRow) string { return "" })
	}
	slices.SortFunc(rows, func(a, b freeRow) int {
		return cmp.Or(cmp.Compare(b.free[gpu], a.free[gpu]), strings.Compare(a.key, b.key))
	})
	free := make([]v1alpha1.FreeNodes, 0, len(rows))
	for _, row := range rows {
		free = append(free, v1alpha1.FreeNodes{GPUs: row.free[gpu], Nodes: int32(row.nodes), Free: listOf(row.free)}) //nolint:gosec // Fewer.
	}
	return free
}

func freeOf(node *capacity.NodeState) capacity.Resources {
	free := capacity.FreePorts(node)
	for name, amount := range node.Allocatable {
		free[name] = max(0, amount-node.Used[name])
	}
	return free
}

func newFreeRow(free capacity.Resources, nodes int) freeRow {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(free)) {
		fmt.Fprintf(&b, "%s=%020d ", name, free[name])
	}
	return freeRow{free: free, nodes: nodes, key: b.String()}
}

// rounded rounds cores, bytes and pods down to multiples of two to the power of step.
func rounded(rows []freeRow, step int) []freeRow {
	coarse := make([]freeRow, 0, len(rows))
	for _, row := range rows {
		free := maps.Clone(row.free)
		for name, amount := range free {
			unit := int64(1)
			switch {
			case name == corev1.ResourceCPU:
				unit = 1000 << step
			case inBytes(name):
				unit = 1 << 30 << step
			case name == corev1.ResourcePods:
				unit = 1 << step
			}
			free[name] = amount - amount%unit
		}
		coarse = append(coarse, newFreeRow(free, row.nodes))
	}
	return coarse
}

// merge makes one row of all rows for which alike is equal, with the least of everything.
func merge(rows []freeRow, alike func(freeRow) string) []freeRow {
	merged := map[string]freeRow{}
	for _, row := range rows {
		key := alike(row)
		if same, known := merged[key]; known {
			row = newFreeRow(leastOf(same.free, row.free), same.nodes+row.nodes)
		}
		merged[key] = row
	}
	return slices.Collect(maps.Values(merged))
}
