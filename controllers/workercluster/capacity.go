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
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

const (
	// groupLimit and freeLimit are those of the CRD.
	groupLimit = 64
	freeLimit  = 64
)

// capacityOf sums up a worker's nodes for people: groups of alike nodes, and "free/total" GPUs. It counts what is bound to
// nodes now; what has been placed and is not bound yet is placement's business.
func capacityOf(snapshot *remote.Snapshot) ([]v1alpha1.NodeGroup, string) {
	groups := map[string]*group{}
	var free, total int64
	for _, node := range snapshot.Nodes {
		if !node.Schedulable {
			continue
		}
		gpu := gpuResource(node.Allocatable)
		key := fmt.Sprintf("%s/%s/%v", product(node.Labels, gpu), gpu, listOf(node.Allocatable))
		g := groups[key]
		if g == nil {
			g = &group{free: map[int64]int32{}, NodeGroup: v1alpha1.NodeGroup{
				Product: product(node.Labels, gpu), Resource: gpu, Allocatable: listOf(node.Allocatable),
			}}
			groups[key] = g
		}
		g.Nodes++
		if gpu != "" {
			left := max(0, node.Allocatable[gpu]-node.Used[gpu])
			g.free[left]++
			free += left
			total += node.Allocatable[gpu]
		}
	}
	return sorted(groups), fmt.Sprintf("%d/%d", free, total)
}

// group is a NodeGroup in the making.
type group struct {
	v1alpha1.NodeGroup
	free map[int64]int32
}

// sorted returns the largest groups first.
func sorted(groups map[string]*group) []v1alpha1.NodeGroup {
	var list []v1alpha1.NodeGroup
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		for gpus, nodes := range g.free {
			g.Free = append(g.Free, v1alpha1.FreeNodes{GPUs: gpus, Nodes: nodes})
		}
		slices.SortFunc(g.Free, func(a, b v1alpha1.FreeNodes) int { return cmp.Compare(b.GPUs, a.GPUs) })
		g.Free = g.Free[:min(len(g.Free), freeLimit)]
		list = append(list, g.NodeGroup)
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.NodeGroup) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return list[:min(len(list), groupLimit)]
}

// gpuResource is the extended resource of a node's GPUs: the first by name whose last part speaks of GPUs.
func gpuResource(allocatable remote.Resources) corev1.ResourceName {
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		domain, last, extended := strings.Cut(string(name), "/")
		if extended && allocatable[name] > 0 && (strings.Contains(last, "gpu") || strings.HasPrefix(domain, "gpu.")) {
			return name
		}
	}
	return ""
}

// product is the GPU product by the label that the vendor's feature discovery sets, such as nvidia.com/gpu.product.
func product(labels map[string]string, gpu corev1.ResourceName) string {
	if gpu == "" {
		return ""
	}
	vendor, _, _ := strings.Cut(string(gpu), "/")
	return labels[vendor+"/gpu.product"]
}

// listOf turns counted resources into quantities.
func listOf(resources remote.Resources) corev1.ResourceList {
	list := make(corev1.ResourceList, len(resources))
	for name, amount := range resources {
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
