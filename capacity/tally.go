// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/capacity/devices"
)

// Tally is an Inventory that counts nodes and pods by their events. The cost of an event does not depend on the size of
// the cluster. The events come from informers that have NodeHandler and PodHandler.
type Tally struct {
	audience
	devices deviceCount
	mu      sync.Mutex
	// locked is guarded by mu.
	locked struct {
		nodes      map[string]*node
		pods       map[types.NamespacedName]countedPod
		gangs      map[types.NamespacedName]*gang
		generation uint64
		snapshot   *Snapshot
		quota      *quotaCount // quota is nil unless quota is counted.
		uncounted  []string
		claims     []corev1.ResourceName // claims are the kinds of claims that are counted.
		ports      hostPortCount
		names      []string // names are the sorted names of the nodes. nil: the next Snapshot sorts them again.
	}
}

// node is what is known of a node name. Pods can arrive before their node, and stay after it.
type node struct {
	exists bool
	state  NodeState
	used   Resources
	// gangs are the parts of used that belong to JobSets. Snapshots share the values: do not write to them.
	gangs map[types.NamespacedName]Resources
	pods  int
	// devices are what Dynamic Resource Allocation has on the node. nil: nothing.
	devices *devices.Node
	// shared is the value in snapshots. It is nil after a change.
	shared *NodeState
}

type gang struct {
	pods map[string]GangPods
	// shared is the value in snapshots. It is nil after a change.
	shared map[string]GangPods
}

// countedPod is what a pod counts for.
type countedPod struct {
	node      string
	bound     bool
	succeeded bool
	requests  Resources
	gang      types.NamespacedName
	job       string
}

// NewTally returns an empty tally.
func NewTally() *Tally {
	t := &Tally{devices: deviceCount{counter: devices.NewCounter()}}
	t.locked.nodes = map[string]*node{}
	t.locked.pods = map[types.NamespacedName]countedPod{}
	t.locked.gangs = map[types.NamespacedName]*gang{}
	t.locked.ports = hostPortCount{}
	return t
}

// Snapshot implements Inventory. A new snapshot shares unchanged parts with the snapshot before.
func (t *Tally) Snapshot() *Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &t.locked
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
		Quota:      l.quota.share(),
		Uncounted:  l.uncounted,
	}
	counted := l.ports.counted()
	for _, name := range l.names {
		node := l.nodes[name].share(l.claims, t.gangOfLocked)
		if counted != nil {
			node = withCountedPorts(node, counted)
		}
		s.Nodes = append(s.Nodes, node)
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

func (t *Tally) gangOfLocked(pod types.NamespacedName) types.NamespacedName {
	return t.locked.pods[pod].gang
}

func (n *node) share(claims []corev1.ResourceName, gangOf func(pod types.NamespacedName) types.NamespacedName) *NodeState {
	if n.shared == nil {
		state := n.state
		state.Used = maps.Clone(n.used)
		if len(n.gangs) > 0 {
			state.Gangs = maps.Clone(n.gangs)
		}
		n.addDevices(&state, claims, gangOf)
		n.shared = &state
	}
	return n.shared
}

// update calls change under the lock. If change returns true, update notifies the subscribers.
func (t *Tally) update(change func() bool) {
	if t.change(change) {
		t.notify()
	}
}

func (t *Tally) change(change func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock() // Also after a panic, or Snapshot would wait for ever.
	changed := change()
	if changed {
		t.locked.generation++
	}
	return changed
}

func (t *Tally) setNode(n *corev1.Node) {
	state := NodeState{
		Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Schedulable: ready(n) && !n.Spec.Unschedulable,
		Allocatable: resourcesOf(n.Status.Allocatable), Count: 1,
	}
	labelled := false
	t.update(func() bool {
		known := t.nodeLocked(n.Name)
		labelled = !known.exists || !maps.Equal(known.state.Labels, state.Labels)
		if known.exists && equality.Semantic.DeepEqual(known.state, state) {
			return false
		}
		if !known.exists {
			t.locked.names = nil
		}
		known.exists, known.state, known.shared = true, state, nil
		return true
	})
	if labelled { // Devices come after the node: they may take a while.
		t.countDevices(func(c *devices.Counter) { c.SetNode(n.Name, n.Labels) })
	}
}

func (t *Tally) deleteNode(name string) {
	t.update(func() bool {
		known, ok := t.locked.nodes[name]
		if !ok || !known.exists {
			return false
		}
		known.exists, known.state, known.shared = false, NodeState{}, nil
		t.locked.names = nil
		t.forgetLocked(name, known)
		return true
	})
	t.countDevices(func(c *devices.Counter) { c.DeleteNode(name) })
}

func (t *Tally) setPod(pod *corev1.Pod) {
	key, counted := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, countedPodOf(pod)
	t.update(func() bool {
		before := t.locked.pods[key]
		if before.same(counted) {
			return false
		}
		t.countLocked(before, -1)
		t.countLocked(counted, 1)
		if counted.same(countedPod{}) {
			delete(t.locked.pods, key)
		} else {
			t.locked.pods[key] = counted
		}
		return true
	})
}

func (t *Tally) deletePod(key types.NamespacedName) {
	t.update(func() bool {
		before, ok := t.locked.pods[key]
		if ok {
			delete(t.locked.pods, key)
			t.countLocked(before, -1)
		}
		return ok
	})
}

// count adds or subtracts a pod on this node.
func (n *node) count(p countedPod, sign int32) {
	n.used.add(p.requests, int64(sign))
	n.pods += int(sign)
	n.shared = nil
	if p.gang.Name == "" {
		return
	}
	sum := maps.Clone(n.gangs[p.gang])
	if sum == nil {
		sum = Resources{}
	}
	sum.add(p.requests, int64(sign))
	if len(sum) == 0 {
		delete(n.gangs, p.gang)
		return
	}
	if n.gangs == nil {
		n.gangs = map[types.NamespacedName]Resources{}
	}
	n.gangs[p.gang] = sum
}

func (t *Tally) countLocked(p countedPod, sign int32) {
	if p.bound {
		n := t.nodeLocked(p.node)
		n.count(p, sign)
		t.locked.ports.add(p.requests, int(sign))
		t.forgetLocked(p.node, n)
	}
	if p.gang.Name == "" || (!p.bound && !p.succeeded) {
		return
	}
	g := t.locked.gangs[p.gang]
	if g == nil {
		g = &gang{pods: map[string]GangPods{}}
		t.locked.gangs[p.gang] = g
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
		delete(t.locked.gangs, p.gang)
	}
}

func (t *Tally) nodeLocked(name string) *node {
	n := t.locked.nodes[name]
	if n == nil {
		n = &node{used: Resources{}}
		t.locked.nodes[name] = n
	}
	return n
}

// forgetLocked deletes the entry of a node that does not exist, and has neither pods nor devices.
func (t *Tally) forgetLocked(name string, n *node) {
	if !n.exists && n.pods == 0 && n.devices == nil {
		delete(t.locked.nodes, name)
	}
}

// countedPodOf returns the zero value for a pod that counts for nothing: it is on no node, or has failed.
func countedPodOf(pod *corev1.Pod) countedPod {
	counted := countedPod{}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		counted.succeeded = true
	case pod.Status.Phase == corev1.PodFailed || pod.Spec.NodeName == "":
		return counted
	default:
		counted.node, counted.bound, counted.requests = pod.Spec.NodeName, true, requestsOf(pod)
	}
	if name := pod.Labels[jobsetv1alpha2.JobSetNameKey]; name != "" {
		counted.gang = types.NamespacedName{Namespace: pod.Namespace, Name: name}
		counted.job = pod.Labels[jobsetv1alpha2.ReplicatedJobNameKey]
	} else if counted.succeeded {
		return countedPod{}
	}
	return counted
}

func (p countedPod) same(other countedPod) bool {
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

// NodeHandler returns the event handler for an informer of nodes.
func (t *Tally) NodeHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { t.setNode(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { t.setNode(obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) { t.deleteNode(keyOf(obj).Name) },
	}
}

// PodHandler returns the event handler for an informer of the pods of all namespaces.
func (t *Tally) PodHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { t.setPod(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { t.setPod(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) { t.deletePod(keyOf(obj)) },
	}
}

// keyOf returns the key of a deleted object. The informer may only have a tombstone of it.
func keyOf(obj any) types.NamespacedName {
	name, err := toolscache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: name.Namespace, Name: name.Name}
}
