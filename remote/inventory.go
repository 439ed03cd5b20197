// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
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
	// Nodes sorted by name.
	Nodes []*NodeState
	// Gangs by the JobSet's namespace and name, then by replicated job. Those without a bound or succeeded pod are left out.
	Gangs map[types.NamespacedName]map[string]GangPods
}

// Inventory counts what a worker's nodes have and what its pods use, as events come in: each costs the same, however large the
// worker is. While the worker is not Connected it is what was last seen.
type Inventory struct {
	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		nodes       map[string]*node
		pods        map[types.NamespacedName]podFacts
		gangs       map[types.NamespacedName]*gang
		generation  uint64
		snapshot    *Snapshot
		names       []string // of the nodes, sorted; nil: to be made anew
		subscribers map[int]func()
		next        int
	}
}

// node is what is known under a node's name. Pods can be seen before their node, and after it.
type node struct {
	exists bool
	state  NodeState
	used   Resources
	pods   int
	// shared is the value in snapshots, nil after a change.
	shared *NodeState
}

type gang struct {
	pods map[string]GangPods
	// shared is the value in snapshots, nil after a change.
	shared map[string]GangPods
}

// podFacts are what a pod counts for.
type podFacts struct {
	node      string
	bound     bool
	succeeded bool
	requests  Resources
	gang      types.NamespacedName
	job       string
}

func newInventory() *Inventory {
	i := &Inventory{}
	i.locked.nodes = map[string]*node{}
	i.locked.pods = map[types.NamespacedName]podFacts{}
	i.locked.gangs = map[types.NamespacedName]*gang{}
	i.locked.subscribers = map[int]func(){}
	return i
}

// Subscribe calls changed after every change, from the goroutine that saw it and under no lock. changed has to return at once:
// wake something, and let it take a Snapshot.
func (i *Inventory) Subscribe(changed func()) (cancel func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := i.locked.next
	i.locked.next++
	i.locked.subscribers[key] = changed
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.locked.subscribers, key)
	}
}

// Snapshot returns the inventory of now. Without a change it is the same pointer again; with changes it shares what has not
// changed with the one before.
func (i *Inventory) Snapshot() *Snapshot {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := &i.locked
	if l.snapshot != nil && l.snapshot.Generation == l.generation {
		return l.snapshot
	}
	if l.names == nil {
		l.names = make([]string, 0, len(l.nodes))
		for name, n := range l.nodes {
			if n.exists {
				l.names = append(l.names, name)
			}
		}
		slices.Sort(l.names)
	}
	s := &Snapshot{
		Generation: l.generation,
		Nodes:      make([]*NodeState, 0, len(l.names)),
		Gangs:      make(map[types.NamespacedName]map[string]GangPods, len(l.gangs)),
	}
	for _, name := range l.names {
		s.Nodes = append(s.Nodes, l.nodes[name].share())
	}
	for key, g := range l.gangs {
		if g.shared == nil {
			g.shared = maps.Clone(g.pods)
		}
		s.Gangs[key] = g.shared
	}
	l.snapshot = s
	return s
}

func (n *node) share() *NodeState {
	if n.shared == nil {
		state := n.state
		state.Used = maps.Clone(n.used)
		n.shared = &state
	}
	return n.shared
}

// update changes something under the lock, and tells subscribers if it says that it has.
func (i *Inventory) update(change func() bool) {
	i.mu.Lock()
	var tell []func()
	if change() {
		i.locked.generation++
		tell = slices.Collect(maps.Values(i.locked.subscribers))
	}
	i.mu.Unlock()
	for _, changed := range tell {
		changed()
	}
}

func (i *Inventory) setNode(n *corev1.Node) {
	state := NodeState{
		Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Schedulable: ready(n) && !n.Spec.Unschedulable,
		Allocatable: resourcesOf(n.Status.Allocatable),
	}
	i.update(func() bool {
		known := i.nodeLocked(n.Name)
		if known.exists && equality.Semantic.DeepEqual(known.state, state) {
			return false
		}
		if !known.exists {
			i.locked.names = nil
		}
		known.exists, known.state, known.shared = true, state, nil
		return true
	})
}

func (i *Inventory) deleteNode(name string) {
	i.update(func() bool {
		known, ok := i.locked.nodes[name]
		if !ok || !known.exists {
			return false
		}
		known.exists, known.state, known.shared = false, NodeState{}, nil
		i.locked.names = nil
		i.forgetLocked(name, known)
		return true
	})
}

func (i *Inventory) setPod(pod *corev1.Pod) {
	key, facts := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, factsOf(pod)
	i.update(func() bool {
		before := i.locked.pods[key]
		if before.same(facts) {
			return false
		}
		i.countLocked(before, -1)
		i.countLocked(facts, 1)
		if facts.same(podFacts{}) {
			delete(i.locked.pods, key)
		} else {
			i.locked.pods[key] = facts
		}
		return true
	})
}

func (i *Inventory) deletePod(key types.NamespacedName) {
	i.update(func() bool {
		before, ok := i.locked.pods[key]
		if ok {
			delete(i.locked.pods, key)
			i.countLocked(before, -1)
		}
		return ok
	})
}

// countLocked adds or takes away what a pod counts for.
func (i *Inventory) countLocked(p podFacts, sign int32) {
	if p.bound {
		n := i.nodeLocked(p.node)
		n.used.add(p.requests, int64(sign))
		n.pods += int(sign)
		n.shared = nil
		i.forgetLocked(p.node, n)
	}
	if p.gang.Name == "" || (!p.bound && !p.succeeded) {
		return
	}
	g := i.locked.gangs[p.gang]
	if g == nil {
		g = &gang{pods: map[string]GangPods{}}
		i.locked.gangs[p.gang] = g
	}
	counts := g.pods[p.job]
	if p.bound {
		counts.Bound += sign
	} else {
		counts.Succeeded += sign
	}
	g.pods[p.job], g.shared = counts, nil
	if counts == (GangPods{}) {
		delete(g.pods, p.job)
	}
	if len(g.pods) == 0 {
		delete(i.locked.gangs, p.gang)
	}
}

func (i *Inventory) nodeLocked(name string) *node {
	n := i.locked.nodes[name]
	if n == nil {
		n = &node{used: Resources{}}
		i.locked.nodes[name] = n
	}
	return n
}

// forgetLocked drops the record of a node that is not there and has no pods.
func (i *Inventory) forgetLocked(name string, n *node) {
	if !n.exists && n.pods == 0 {
		delete(i.locked.nodes, name)
	}
}

// factsOf a pod that counts for nothing, because it is on no node or has failed, are zero.
func factsOf(pod *corev1.Pod) podFacts {
	facts := podFacts{}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		facts.succeeded = true
	case pod.Status.Phase == corev1.PodFailed || pod.Spec.NodeName == "":
		return facts
	default:
		facts.node, facts.bound, facts.requests = pod.Spec.NodeName, true, requestsOf(pod)
	}
	if name := pod.Labels[labelJobSetName]; name != "" {
		facts.gang = types.NamespacedName{Namespace: pod.Namespace, Name: name}
		facts.job = pod.Labels[labelReplicatedJobName]
	} else if facts.succeeded {
		return podFacts{}
	}
	return facts
}

func (p podFacts) same(other podFacts) bool {
	return p.node == other.node && p.bound == other.bound && p.succeeded == other.succeeded && p.gang == other.gang &&
		p.job == other.job && maps.Equal(p.requests, other.requests)
}

func ready(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return n.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeHandler(i *Inventory) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { i.setNode(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { i.setNode(obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) { i.deleteNode(keyOf(obj).Name) },
	}
}

func podHandler(i *Inventory) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { i.setPod(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { i.setPod(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) { i.deletePod(keyOf(obj)) },
	}
}

// keyOf names a deleted object, of which only a tombstone may be left.
func keyOf(obj any) types.NamespacedName {
	name, err := toolscache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: name.Namespace, Name: name.Name}
}
