// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeState is what placement needs of a node. It is never changed, but replaced: do not write to it.
type NodeState struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
	// Schedulable: Ready and not cordoned.
	Schedulable bool
	// Allocatable of the node, and Used: the requests of the pods that are bound to it and not over. A pod that is being
	// deleted still counts. "pods" is the number of pods.
	Allocatable, Used Resources
	// Gangs is the part of Used that is of pods of JobSets, by the JobSet's namespace and name. Nil without any.
	Gangs map[types.NamespacedName]Resources
	// Count is the number of nodes that are like this one in everything above but the name, at least 1. Amounts are
	// those of each of the nodes. From the hub's own caches each node comes by itself, with its Name. In what was reported nodes have no
	// names, nor the label kubernetes.io/hostname, nor taints that keep no pod off.
	Count int
}

// GangPods counts the pods of one replicated job of a JobSet.
type GangPods struct {
	// Bound pods are on a node and not over. Succeeded ones are over, and still there.
	Bound, Succeeded int32
}

// Snapshot is an inventory at one moment. It is shared: do not write to it.
type Snapshot struct {
	// Generation is another one if and only if something has changed.
	Generation uint64
	// Nodes in an order that depends on what they are only. Single ones are sorted by name.
	Nodes []*NodeState
	// Gangs by the JobSet's namespace and name, then by replicated job. Those without a bound or succeeded pod are left out.
	Gangs map[types.NamespacedName]map[string]GangPods
}

// Inventory is what a worker's nodes have and what its pods use. While the worker is not Connected it is what was last seen.
//
// There are two, with the same numbers: a Tally counts nodes and pods, a Reported reads what a Tally on the worker has counted.
type Inventory interface {
	// Snapshot returns the inventory of now. Without a change it is the same pointer again.
	Snapshot() *Snapshot
	// Subscribe calls changed after every change, from the goroutine that saw it and under no lock. changed has to return at once:
	// wake something, and let it take a Snapshot.
	Subscribe(changed func()) (cancel func())
}

// State says whether the inventory of a Connected worker can be believed.
type State int

// The states.
const (
	// Known: it is up to date.
	Known State = iota
	// Pending: the report has not been read yet.
	Pending
	// ReportMissing: there is no report, or it cannot be read.
	ReportMissing
	// ReportStale: nobody renews the report any more.
	ReportStale
)

// audience are those who have subscribed to an inventory.
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

// tell tells all that something has changed.
func (a *audience) tell() {
	a.mu.Lock()
	tell := slices.Collect(maps.Values(a.locked.subscribers))
	a.mu.Unlock()
	for _, changed := range tell {
		changed()
	}
}
