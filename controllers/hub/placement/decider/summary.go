// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// Summary is what metrics say of the waiting list and the fleet.
type Summary struct {
	// Waiting sums up the waiting list by policy.
	Waiting []queue.Waiting
	// Unusable is how many GPUs are free on each worker although gangs wait that ask for such GPUs and may use the worker:
	// the free GPUs are too few or too scattered, or they are held for another job. A worker without such GPUs is left
	// out.
	Unusable map[v1alpha1.ClusterName]int64
}

// Summarize returns the present Summary. It looks at the first gangs in order for Unusable, each with another demand.
func Summarize(d *Decider) Summary {
	d.mu.Lock()
	waiting, jobs := d.list.Waiting(), d.list.First(maxCompared)
	d.mu.Unlock()
	wanted := map[v1alpha1.ClusterName]map[corev1.ResourceName]struct{}{}
	for i := range jobs {
		gpus := gpusOf(jobs[i].PodSets, d.options.Accelerators)
		if len(gpus) == 0 {
			continue
		}
		for _, line := range d.Explain(&jobs[i]) {
			switch line.Reason {
			case v1alpha1.ReasonInsufficientResources, v1alpha1.ReasonNoMatchingNode, v1alpha1.ReasonNoDomain, v1alpha1.ReasonReserved:
			default:
				continue
			}
			if wanted[line.Cluster] == nil {
				wanted[line.Cluster] = map[corev1.ResourceName]struct{}{}
			}
			for _, gpu := range gpus {
				wanted[line.Cluster][gpu] = struct{}{}
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return Summary{Waiting: waiting, Unusable: freeOf(d.fleet.Workers(), wanted)}
}

// maxCompared is how many waiting gangs Summarize looks at for Unusable. Each costs a decision about all workers after
// a change.
const maxCompared = 16

// freeOf returns how much of some resources is free on workers.
func freeOf(
	workers []dispatch.Worker, resources map[v1alpha1.ClusterName]map[corev1.ResourceName]struct{},
) map[v1alpha1.ClusterName]int64 {
	free := map[v1alpha1.ClusterName]int64{}
	for i := range workers {
		present := workers[i].Nodes.Present()
		for name := range resources[workers[i].Name] {
			// The largest number: the nodes of the worker do not count, see Nodes.Free.
			if amount := present.Free(name); amount > 0 && amount < math.MaxInt64 {
				free[workers[i].Name] += amount
			}
		}
	}
	return free
}

// gpusOf returns the kinds of GPUs and other whole devices that a gang requests.
func gpusOf(podSets []v1alpha1.PodSet, table accelerators.Table) (gpus []corev1.ResourceName) {
	for i := range podSets {
		for name, quantity := range podSets[i].Requests {
			unit := accelerators.UnitIn(table, name, podSets[i].Requests)
			if unit == accelerators.Device && !quantity.IsZero() && !slices.Contains(gpus, name) {
				gpus = append(gpus, name)
			}
		}
	}
	return gpus
}
