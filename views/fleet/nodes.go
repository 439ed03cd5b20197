// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
)

// Nodes returns what the groups of a status have free. exact is false if the status does not list every resource,
// because an older manager or a person has written it. Then only the GPUs count as used.
func Nodes(groups []v1alpha1.NodeGroup) (nodes *dispatch.Nodes, exact bool) {
	all, exact := freeOf(groups)
	return dispatch.NewNodes(all), exact
}

// freeOf is Nodes before they are put together.
func freeOf(groups []v1alpha1.NodeGroup) (all []dispatch.NodeGroup, exact bool) {
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
	return all, exact
}

func nodesOf(group *v1alpha1.NodeGroup, free dispatch.Resources, count int32) dispatch.NodeGroup {
	return dispatch.NodeGroup{Labels: group.Labels, Taints: group.Taints, Free: free, Count: int(count)}
}

// guess returns what is free on a node if only the free GPUs are known.
func guess(group *v1alpha1.NodeGroup, gpus int64) dispatch.Resources {
	free := dispatch.FromList(group.Allocatable)
	if group.Resource != "" {
		free[group.Resource] = gpus
	}
	return free
}

// pool is the GPUs or other devices of one product on one worker, or the shares of one kind.
type pool struct {
	product     string
	resource    corev1.ResourceName
	unit        accelerators.Unit
	free, total int64
	groups      []v1alpha1.NodeGroup
	// whole counts the nodes whose GPUs are all free, by their number of GPUs.
	whole map[int64]int64
}

// name is the product of the pool. Of shares it says also which they are, because a product is divided in several ways.
func (p *pool) name() string {
	switch {
	case p.product == "":
		return string(p.resource)
	case p.unit == accelerators.Share:
		return fmt.Sprintf("%s (%s)", p.product, p.resource)
	}
	return p.product
}

// pools returns the GPUs and similar devices of a worker: whole devices first, then the largest pool. Nodes without any
// are in no pool.
func pools(groups []v1alpha1.NodeGroup, table accelerators.Table) []*pool {
	type key struct {
		product  string
		resource corev1.ResourceName
	}
	byKey, all := map[key]*pool{}, []*pool(nil)
	for i := range groups {
		for _, has := range table.In(&groups[i]) {
			k := key{has.Product, has.Resource}
			p := byKey[k]
			if p == nil {
				p = &pool{product: has.Product, resource: has.Resource, unit: has.Unit, whole: map[int64]int64{}}
				byKey[k], all = p, append(all, p)
			}
			p.add(&groups[i], has)
		}
	}
	slices.SortStableFunc(all, func(a, b *pool) int { return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(b.total, a.total)) })
	return all
}

func (p *pool) add(group *v1alpha1.NodeGroup, has accelerators.Counted) {
	p.groups = append(p.groups, *group)
	p.total += has.Each * int64(group.Nodes)
	for at, free := range group.Free {
		p.free += has.Free[at] * int64(free.Nodes)
		if has.Free[at] >= has.Each {
			p.whole[has.Each] += int64(free.Nodes)
		}
	}
}

// gang returns the largest gang of whole free nodes: the number of nodes, and the GPUs of each. Of two gangs with
// equally many GPUs, the gang with fewer nodes is the larger one.
func (p *pool) gang() (nodes, gpus int64) {
	for _, size := range slices.Backward(slices.Sorted(maps.Keys(p.whole))) {
		if size*p.whole[size] > nodes*gpus {
			nodes, gpus = p.whole[size], size
		}
	}
	return nodes, gpus
}
