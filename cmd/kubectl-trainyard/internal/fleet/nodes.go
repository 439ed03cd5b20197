// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Nodes returns what the groups of a status have free. exact is false if the status does not say it of every resource, as that of
// an older manager, or one that somebody has written: then only the GPUs are known to be in use.
func Nodes(groups []v1alpha1.NodeGroup) (nodes *dispatch.Nodes, exact bool) {
	var all []dispatch.NodeGroup
	exact = true
	for i := range groups {
		group := &groups[i]
		listed := int32(0)
		for _, free := range group.Free {
			amounts := dispatch.FromList(free.Free)
			if len(free.Free) == 0 {
				amounts, exact = guess(group, free.GPUs), false
			}
			all = append(all, nodesOf(group, amounts, free.Nodes))
			listed += free.Nodes
		}
		if len(group.Free) == 0 && listed < group.Nodes {
			all, exact = append(all, nodesOf(group, dispatch.FromList(group.Allocatable), group.Nodes)), false
		}
	}
	return dispatch.NewNodes(all), exact
}

func nodesOf(group *v1alpha1.NodeGroup, free dispatch.Resources, count int32) dispatch.NodeGroup {
	return dispatch.NodeGroup{Labels: group.Labels, Taints: group.Taints, Free: free, Count: int(count)}
}

// guess is what a node has free of which only the GPUs are known.
func guess(group *v1alpha1.NodeGroup, gpus int64) dispatch.Resources {
	free := dispatch.FromList(group.Allocatable)
	if group.Resource != "" {
		free[group.Resource] = gpus
	}
	return free
}

// Allocatable is what all nodes of the groups have together.
func Allocatable(groups []v1alpha1.NodeGroup) dispatch.Resources {
	all := dispatch.Resources{}
	for i := range groups {
		for name, amount := range dispatch.FromList(groups[i].Allocatable) {
			all[name] += amount * int64(groups[i].Nodes)
		}
	}
	return all
}

// pool is the GPUs of one product on one worker.
type pool struct {
	product     string
	resource    corev1.ResourceName
	free, total int64
	groups      []v1alpha1.NodeGroup
	// whole counts the nodes all of whose GPUs are free, by how many these are.
	whole map[int64]int64
}

// pools returns the GPUs of a worker, the most first. Nodes without any are in none.
func pools(groups []v1alpha1.NodeGroup) []*pool {
	type key struct {
		product  string
		resource corev1.ResourceName
	}
	byKey, all := map[key]*pool{}, []*pool(nil)
	for i := range groups {
		group := &groups[i]
		if group.Resource == "" {
			continue
		}
		k := key{group.Product, group.Resource}
		p := byKey[k]
		if p == nil {
			p = &pool{product: group.Product, resource: group.Resource, whole: map[int64]int64{}}
			byKey[k], all = p, append(all, p)
		}
		p.add(group)
	}
	slices.SortStableFunc(all, func(a, b *pool) int { return int(b.total - a.total) })
	return all
}

func (p *pool) add(group *v1alpha1.NodeGroup) {
	p.groups = append(p.groups, *group)
	each := group.Allocatable[group.Resource]
	p.total += each.Value() * int64(group.Nodes)
	for _, free := range group.Free {
		p.free += free.GPUs * int64(free.Nodes)
		if free.GPUs > 0 && free.GPUs >= each.Value() {
			p.whole[each.Value()] += int64(free.Nodes)
		}
	}
}

// gang is the largest gang of whole nodes: how many nodes with how many GPUs each, all of them free. Of two gangs with as many GPUs
// the one with fewer nodes counts as the larger.
func (p *pool) gang() (nodes, gpus int64) {
	for _, size := range slices.Backward(slices.Sorted(maps.Keys(p.whole))) {
		if size*p.whole[size] > nodes*gpus {
			nodes, gpus = p.whole[size], size
		}
	}
	return nodes, gpus
}
