// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"maps"
	"math"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	podresource "k8s.io/component-helpers/resource"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// NodeState is what placement needs to know of a node. Do not write to it: snapshots share it.
type NodeState struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
	// Schedulable is true when the node is Ready and not cordoned.
	Schedulable bool
	// Allocatable is what the node has. Used is the sum of the requests of the pods that are bound to it and not over. A
	// pod that is being deleted still counts. "pods" is the number of pods. Used also has host ports, see package hostports.
	// Of claims (devices.NameOfClaim), Allocatable has how many fit if nobody else has devices. 0: none ever fits.
	Allocatable, Used Resources
	// Gangs is the part of Used that pods of JobSets use, by the JobSet's namespace and name. Nil without such pods.
	Gangs map[types.NamespacedName]Resources
	// Count is how many nodes are equal in all fields above but the name, at least 1. Amounts are per node. A Tally's
	// nodes have a Name. A report's nodes have no name, no label kubernetes.io/hostname, and only HardTaints.
	Count int
}

// GangPods counts the pods of one replicated job of a JobSet.
type GangPods struct {
	// Bound counts pods that are on a node and not over. Succeeded counts pods that have succeeded and still exist.
	Bound, Succeeded int32
}

// Snapshot is an inventory at one moment. It is shared: do not write to it.
type Snapshot struct {
	// Generation changes if and only if something has changed.
	Generation uint64
	// Nodes are in an order that depends only on their content. Nodes of a Tally are sorted by name.
	Nodes []*NodeState
	// Gangs are by the JobSet's namespace and name, then by replicated job. All have a bound or succeeded pod.
	Gangs map[types.NamespacedName]map[string]GangPods
	// Quota is what Kueue lets jobs use. Nil: it is not counted, or not known yet.
	Quota *v1alpha1.KueueQuota
	// Uncounted says which devices do not count, and why, in at most ten texts.
	Uncounted []string
	// Abridged is what a report leaves out because it would be too large.
	Abridged []v1alpha1.Abridgement
}

// Recognized returns how many nodes are of an item of spec.expandable, also those that take no pods. If nobody knows
// the labels of all nodes, they are as many as there may be.
func (s *Snapshot) Recognized(item *v1alpha1.ExpandableNodes) int {
	if slices.Contains(s.Abridged, v1alpha1.AbridgedNodeLabels) || slices.Contains(s.Abridged, v1alpha1.AbridgedNodes) {
		return int(item.Maximum)
	}
	count := 0
	for _, node := range s.Nodes {
		if item.Recognizes(node.Labels) {
			count += node.Count
		}
	}
	return count
}

// Inventory is what a worker's nodes have and what its pods use. While the worker is not Connected, it is out of date.
//
// The two implementations have the same numbers. A Tally counts nodes and pods. A Reported reads a report.
type Inventory interface {
	// Snapshot returns the current inventory. Without a change it returns the same pointer again.
	Snapshot() *Snapshot
	// Subscribe calls changed after every change, under no lock, from the goroutine that handles the change. changed must
	// return at once: it wakes another goroutine, which takes a Snapshot.
	Subscribe(changed func()) (cancel func())
}

// State says whether the inventory of a Connected worker is reliable.
type State int

// The states.
const (
	// Known: the inventory is up to date.
	Known State = iota
	// Pending: the hub has not read the report yet.
	Pending
	// ReportMissing: there is no report, or the hub cannot read it.
	ReportMissing
	// ReportStale: nobody renews the report any more.
	ReportStale
	// Unusable: the hub cannot decide with the inventory.
	Unusable
	// QuotaMissing: quota is asked for, but nobody can count it.
	QuotaMissing
)

// audience are the subscribers of an inventory.
type audience struct {
	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		subscribers map[int]func()
		next        int
	}
}

// Subscribe implements Inventory.
func (a *audience) Subscribe(changed func()) (cancel func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := a.locked.next
	a.locked.next++
	if a.locked.subscribers == nil {
		a.locked.subscribers = map[int]func(){}
	}
	a.locked.subscribers[key] = changed
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.locked.subscribers, key)
	}
}

func (a *audience) notify() {
	a.mu.Lock()
	subscribers := slices.Collect(maps.Values(a.locked.subscribers))
	a.mu.Unlock()
	for _, changed := range subscribers {
		changed()
	}
}

// Resources are amounts by resource: cpu in thousandths of a core, everything else in units. "pods" is a resource too.
type Resources map[corev1.ResourceName]int64

// add adds sign times other, and drops amounts that become zero.
func (r Resources) add(other Resources, sign int64) {
	for name, amount := range other {
		if sum := r[name] + sign*amount; sum == 0 {
			delete(r, name)
		} else {
			r[name] = sum
		}
	}
}

func resourcesOf(list corev1.ResourceList) Resources {
	resources := make(Resources, len(list)+1)
	for name, quantity := range list {
		if amount := amountOf(name, quantity); amount != 0 {
			resources[name] = amount
		}
	}
	return resources
}

// largestAmount is the largest amount that is counted: a ten-thousandth of int64 (900 TB), against overflows.
const largestAmount = math.MaxInt64 / 10_000

// amountOf converts an amount. A quantity that does not fit into an int64 would be read as 0 or as a wrong number.
func amountOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	scale := resource.Scale(0)
	if name == corev1.ResourceCPU {
		scale = resource.Milli
	}
	switch {
	case quantity.Cmp(*resource.NewScaledQuantity(largestAmount, scale)) >= 0:
		return largestAmount
	case quantity.Sign() < 0:
		return 0
	}
	return quantity.ScaledValue(scale)
}

// PodRequests returns what a pod requests, with its sidecars and overhead, as the scheduler counts it. What bound pods
// use is counted with it, and so is the demand of jobs. While the kubelet has not carried out a resize, the larger size
// counts. Schedulers before 1.36 do not look at the status of pod-level resources by default, but then it is not set.
func PodRequests(pod *corev1.Pod) corev1.ResourceList {
	return podresource.PodRequests(pod, podresource.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// requestsOf returns what a pod counts for on its node: its requests, its host ports, and 1 for "pods".
func requestsOf(pod *corev1.Pod) Resources {
	resources := resourcesOf(PodRequests(pod))
	resources[corev1.ResourcePods] = 1
	maps.Copy(resources, hostports.Amounts(hostports.Of(&pod.Spec)))
	return resources
}
