// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/hostports"
)

// hostPortCount is how many pods take each host port of a worker.
type hostPortCount map[corev1.ResourceName]int

func (c hostPortCount) add(requests Resources, sign int) {
	for name := range requests {
		if hostports.Is(name) {
			if c[name] += sign; c[name] == 0 {
				delete(c, name)
			}
		}
	}
}

// counted returns the names that count by themselves: those that the most pods take. It is nil if all do. The size of a
// report and the time of a decision grow with this number, so users must not be able to bring any number.
func (c hostPortCount) counted() map[corev1.ResourceName]bool {
	names := slices.Collect(maps.Keys(c))
	names = slices.DeleteFunc(names, func(name corev1.ResourceName) bool { return name == hostports.Others })
	if len(names) <= hostports.Max {
		return nil
	}
	slices.SortFunc(names, func(a, b corev1.ResourceName) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) })
	counted := make(map[corev1.ResourceName]bool, hostports.Max)
	for _, name := range names[:hostports.Max] {
		counted[name] = true
	}
	return counted
}

// withCountedPorts returns a node on which the host ports that do not count by themselves are hostports.Others.
func withCountedPorts(node *NodeState, counted map[corev1.ResourceName]bool) *NodeState {
	changed := *node
	changed.Used = joinPorts(node.Used, counted)
	changed.Gangs = make(map[types.NamespacedName]Resources, len(node.Gangs))
	for gang, used := range node.Gangs {
		changed.Gangs[gang] = joinPorts(used, counted)
	}
	return &changed
}

func joinPorts(used Resources, counted map[corev1.ResourceName]bool) Resources {
	joined := make(Resources, len(used))
	for name, amount := range used {
		if hostports.Is(name) && !counted[name] {
			name = hostports.Others
		}
		joined[name] += amount
	}
	return joined
}

// FreePorts returns the host ports of a node that its pods take, and how much of each is free.
func FreePorts(node *NodeState) Resources {
	free := Resources{}
	for name, used := range node.Used {
		if hostports.Is(name) && used > 0 {
			free[name] = max(0, hostports.Capacity(name)-used)
		}
	}
	return free
}
