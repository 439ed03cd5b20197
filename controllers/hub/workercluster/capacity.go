// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// groupLimit, freeLimit, labelLimit and taintLimit are limits of the CRD.
	groupLimit = 64
	freeLimit  = 64
	labelLimit = 64
	taintLimit = 32
	// rowBudget is how many rows of free amounts all groups of a worker may have together, so that a status of many groups
	// is small enough to be written often. Each group may have fewestRows rows all the same.
	rowBudget  = 256
	fewestRows = 4
)

// capacityOf sums up a worker's nodes for people and tools: groups of alike nodes with their free amounts, and
// "free/total" GPUs and other whole devices. It counts pods that are bound to nodes. Placement counts jobs that are
// placed and not bound yet.
//
// If there are more kinds of nodes than the status can show, alike kinds are shown as one kind with the least of each,
// and small groups are left out. So the status never shows more free room than there is.
func capacityOf(snapshot *capacity.Snapshot, table accelerators.Table) ([]v1alpha1.NodeGroup, string) {
	var nodes []*capacity.NodeState
	var free, total int64
	for _, node := range snapshot.Nodes {
		if !node.Schedulable {
			continue
		}
		node = node.WithoutClaims() // Nobody wants to see the kinds of nodes that they make.
		nodes = append(nodes, node)
		for name, amount := range node.Allocatable {
			if accelerators.UnitIn(table, name, node.Allocatable) == accelerators.Device {
				free += int64(node.Count) * max(0, amount-node.Used[name])
				total += int64(node.Count) * amount
			}
		}
	}
	return withinLimit(nodeGroups(nodes, table)), fmt.Sprintf("%d/%d", free, total)
}

// expandableOf says how many nodes the worker has of each item of spec.expandable.
func expandableOf(items []v1alpha1.ExpandableNodes, snapshot *capacity.Snapshot) []v1alpha1.ExpandableStatus {
	var has []v1alpha1.ExpandableStatus
	for i := range items {
		nodes := int32(min(snapshot.Recognized(&items[i]), math.MaxInt32)) //nolint:gosec // It is not above that.
		has = append(has, v1alpha1.ExpandableStatus{Name: items[i].Name, Nodes: nodes})
	}
	return has
}

// nodeGroups returns the groups, the largest first.
func nodeGroups(nodes []*capacity.NodeState, table accelerators.Table) []v1alpha1.NodeGroup {
	grouping := chooseGrouping(nodes, table)
	members := grouping.apply(nodes)
	limit := min(max(rowBudget/max(len(members), 1), fewestRows), freeLimit)
	var groups []v1alpha1.NodeGroup
	for _, key := range slices.Sorted(maps.Keys(members)) {
		// With some taints missing, the nodes would seem to accept more pods.
		if canShow(capacity.HardTaints(members[key][0].Taints)) {
			groups = append(groups, grouping.groupOf(members[key], limit))
		}
	}
	slices.SortStableFunc(groups, func(a, b v1alpha1.NodeGroup) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return groups[:min(len(groups), groupLimit)]
}

func (g *grouping) groupOf(nodes []*capacity.NodeState, limit int) v1alpha1.NodeGroup {
	first := nodes[0]
	gpu, unit := g.table.Main(first.Allocatable)
	group := v1alpha1.NodeGroup{
		Product: record.Cut(g.table.Product(gpu, first.Labels), productLimit), Resource: gpu, Unit: string(unit), Labels: g.labelsOf(first),
		Taints: capacity.HardTaints(first.Taints),
	}
	least := first.Allocatable
	for _, node := range nodes {
		group.Nodes = int32(min(int64(group.Nodes)+int64(node.Count), math.MaxInt32)) //nolint:gosec // It is not above that.
		least = leastOf(least, node.Allocatable)
	}
	group.Allocatable = listOf(least)
	group.Free = freeRows(nodes, gpu, limit)
	return group
}

// leastOf returns the smaller amount of each resource that both have. All nodes have host ports.
func leastOf(a, b capacity.Resources) capacity.Resources {
	least := make(capacity.Resources, len(a))
	for name, amount := range a {
		if other, has := b[name]; has {
			least[name] = min(amount, other)
		}
	}
	for _, resources := range []capacity.Resources{a, b} {
		for name, amount := range resources {
			if _, has := least[name]; !has && hostports.Is(name) {
				least[name] = amount // Nodes that do not list a host port have it free.
			}
		}
	}
	return least
}

func listOf(resources capacity.Resources) corev1.ResourceList {
	list := make(corev1.ResourceList, len(resources))
	for name, amount := range shownOf(resources) {
		switch name {
		case corev1.ResourceCPU:
			list[name] = *resource.NewMilliQuantity(amount, resource.DecimalSI)
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			list[name] = *resource.NewQuantity(amount, resource.BinarySI)
		default:
			list[name] = *resource.NewQuantity(amount, resource.DecimalSI)
		}
	}
	return list
}
