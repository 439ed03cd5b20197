// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Amounts are numbers of devices by the name under which pods request them, and of claims by NameOfClaim.
type Amounts map[corev1.ResourceName]int64

// Node is what the devices of one node can do. It never changes.
type Node struct {
	// Total is what the node has, without unhealthy devices. A name is there with 0 if its class has no device now, or if
	// the claim fits there not even if nobody else has devices.
	Total Amounts
	// Used is the part of Total that claims have.
	Used Amounts
	// Pods is the part of Used that belongs to the claims of a pod, by the pod's namespace and name. Of kinds of claims, the
	// shares of all pods add up to their part of Used, and one pod alone may give back less.
	Pods map[types.NamespacedName]Amounts
}

// Limits against workers that make a count slow.
const (
	// maxClasses is how many classes are counted: the first by name.
	maxClasses = 64
	// maxDevices is how many devices of a class are counted on one node.
	maxDevices = 1024
	// maxSteps is how many steps the allocator has for one class on one node.
	maxSteps = 100_000
	// maxKinds is how many kinds of claims are counted: the first by name.
	maxKinds = 32
	// maxKindSteps is how many steps the allocator has for one kind of claims on one node. Anybody who makes templates
	// chooses how many it needs, so it is less than maxSteps. A kind that has needed more mostSlow times is not
	// counted any more, until its templates are gone.
	maxKindSteps = 10_000
	mostSlow     = 4
	// kindPatience is the same in time, against selectors that take long themselves, and for all kinds on a node, of which those
	// count as slow that have used a twentieth of it. maxSelectors are how many a kind may
	// have, because the allocator evaluates many of them in one step. kindsPatience is how long all kinds have in one Count.
	kindPatience  = time.Second
	maxSelectors  = 16
	kindsPatience = 2 * time.Second
	// mostLate is how often a node is counted again for which there was no time. Then it waits for its next change.
	mostLate = 20
	// patience is how long one Count may take. What is not counted then is unknown.
	patience = 10 * time.Second
)

// Counter has the devices of one worker.
type Counter struct {
	clock    clock.PassiveClock
	implicit bool
	// slices are as the worker has published them.
	slices  map[string]*resourceapi.ResourceSlice
	pools   map[poolID]*pool
	classes map[string]*resourceapi.DeviceClass
	claims  map[types.NamespacedName]*claim
	nodes   map[string]*node
	rules   map[string]*rule
	// unread says, by resource, why there is nothing of it though the worker may have some.
	unread map[string]string
	// kinds are the kinds of claims by NameOfClaim. templates has the kind of each template that has one.
	kinds     map[corev1.ResourceName]*kind
	templates map[types.NamespacedName]corev1.ResourceName
	// labels are the labels of all nodes of the worker. selecting are the slices whose nodes depend on them.
	labels    map[string]map[string]string
	selecting map[string]*resourceapi.ResourceSlice
	// faulty are the nodes on which a class or a kind cannot be counted. reached are the numbers of slices with devices that do not
	// belong to exactly one node.
	faulty  map[string]bool
	reached map[poolID]int
	// late says how often in a row there was no time to count a node.
	late map[string]int
	// isReached: the last Count found something in reached.
	isReached bool
	// changed are the nodes that the next Count counts.
	changed map[string]bool
	// names is the result of classNames. nil: a class has changed.
	names     map[string][]corev1.ResourceName
	allocator allocator
}

type poolID struct{ driver, name string }

// pool is the slices of a pool, and the claims that have devices of it.
type pool struct {
	slices map[string]*publication
	claims map[types.NamespacedName]*claim
}

// claim is a ResourceClaim with devices.
type claim struct {
	pod     types.NamespacedName
	results []resourceapi.DeviceRequestAllocationResult
}

// node is what is known of a node with devices.
type node struct {
	pools map[poolID]bool
	// classes has the devices of each class that is counted, as if all devices were free. kinds has the same of claims, and
	// requests of devices for one request, by request.key.
	classes  map[string]devicesOf
	kinds    map[corev1.ResourceName]devicesOf
	requests map[string]devicesOf
}

// forget forgets what was computed of the node's slices and of all classes.
func (n *node) forget() { n.classes, n.kinds, n.requests = nil, nil, nil }

// devicesOf are the devices of a class on one node.
type devicesOf struct {
	ids map[structured.DeviceID]bool
	// total is more than the length of ids if devices have shares, and less for claims of several devices.
	total int64
	// fault says why nobody knows. slow: it takes too many steps to know. late: there was no time to know it. now is the fault of
	// what is free.
	fault, now string
	slow, late bool
}

// NewCounter returns a Counter of a worker without devices.
func NewCounter() *Counter {
	return &Counter{
		clock:  clock.RealClock{},
		slices: map[string]*resourceapi.ResourceSlice{}, pools: map[poolID]*pool{},
		classes: map[string]*resourceapi.DeviceClass{}, claims: map[types.NamespacedName]*claim{},
		kinds: map[corev1.ResourceName]*kind{}, templates: map[types.NamespacedName]corev1.ResourceName{},
		nodes: map[string]*node{}, rules: map[string]*rule{}, unread: map[string]string{}, late: map[string]int{}, labels: map[string]map[string]string{},
		selecting: map[string]*resourceapi.ResourceSlice{}, faulty: map[string]bool{}, reached: map[poolID]int{}, changed: map[string]bool{}, allocator: newAllocator(),
	}
}

// SetImplicit says whether the worker's scheduler serves the names deviceclass.resource.kubernetes.io/CLASS to requests
// of containers, as it does from Kubernetes 1.36 on.
func (c *Counter) SetImplicit(implicit bool) {
	if c.implicit != implicit {
		c.implicit = implicit
		for _, n := range c.nodes {
			n.kinds = nil
		}
		c.rename()
	}
}

// SetClass takes a DeviceClass. The Counter keeps it: do not change it.
func (c *Counter) SetClass(class *resourceapi.DeviceClass) {
	c.forgetClass(class.Name)
	c.classes[class.Name] = class
}

// DeleteClass takes the deletion of a DeviceClass.
func (c *Counter) DeleteClass(name string) {
	c.forgetClass(name)
	delete(c.classes, name)
}

func (c *Counter) forgetClass(name string) {
	for _, n := range c.nodes {
		delete(n.classes, name)
		n.kinds, n.requests = nil, nil
	}
	c.rename()
}

// rename makes the next Count count all nodes, because the names of devices may be others.
func (c *Counter) rename() {
	c.names = nil
	for name := range c.nodes {
		c.changed[name] = true
	}
}

// SetClaim takes a ResourceClaim. The Counter keeps its allocation: do not change it.
func (c *Counter) SetClaim(object *resourceapi.ResourceClaim) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	if object.Status.Allocation == nil {
		c.DeleteClaim(key)
		return
	}
	held := &claim{results: object.Status.Allocation.Devices.Results}
	for _, owner := range object.OwnerReferences {
		if owner.Kind == "Pod" {
			held.pod = types.NamespacedName{Namespace: object.Namespace, Name: owner.Name}
		}
	}
	if before := c.claims[key]; before != nil && before.pod == held.pod && equality.Semantic.DeepEqual(before.results, held.results) {
		return // Only who may use it has changed.
	}
	c.DeleteClaim(key)
	c.claims[key] = held
	for _, id := range held.pools() {
		c.pool(id).claims[key] = held
		c.taken(id)
	}
}

// DeleteClaim takes the deletion of a ResourceClaim.
func (c *Counter) DeleteClaim(key types.NamespacedName) {
	held := c.claims[key]
	if held == nil {
		return
	}
	delete(c.claims, key)
	for _, id := range held.pools() {
		delete(c.pools[id].claims, key)
		c.taken(id)
		c.forget(id)
	}
}

// taken makes the next Count count the nodes of a pool of which claims have others devices.
func (c *Counter) taken(id poolID) {
	for name := range c.pools[id].nodes() {
		c.changed[name] = true
	}
}

func (c *Counter) pool(id poolID) *pool {
	if c.pools[id] == nil {
		c.pools[id] = &pool{slices: map[string]*publication{}, claims: map[types.NamespacedName]*claim{}}
	}
	return c.pools[id]
}

func (c *Counter) forget(id poolID) {
	if p := c.pools[id]; p != nil && len(p.slices) == 0 && len(p.claims) == 0 {
		delete(c.pools, id)
	}
}

func (h *claim) pools() []poolID {
	ids := make([]poolID, 0, 1)
	for i := range h.results {
		if id := (poolID{h.results[i].Driver, h.results[i].Pool}); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func poolOf(slice *resourceapi.ResourceSlice) poolID {
	return poolID{slice.Spec.Driver, slice.Spec.Pool.Name}
}

// classNames returns the classes that are counted, with the names under which pods request their devices.
func (c *Counter) classNames() map[string][]corev1.ResourceName {
	if c.names != nil {
		return c.names
	}
	c.names = map[string][]corev1.ResourceName{}
	sorted := slices.Sorted(maps.Keys(c.classes))
	for _, name := range sorted[:min(len(sorted), maxClasses)] {
		c.names[name] = append(c.names[name], NameOfClass(name))
		if c.implicit {
			c.names[name] = append(c.names[name], corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix+name))
		}
		if extended := c.classes[name].Spec.ExtendedResourceName; extended != nil && newest(c.classes, *extended) == name {
			c.names[name] = append(c.names[name], corev1.ResourceName(*extended))
		}
	}
	return c.names
}

// newest returns the class that the scheduler takes for an extended resource: the newest, or the first by name of those
// that are equally old.
func newest(classes map[string]*resourceapi.DeviceClass, extended string) string {
	var newest *resourceapi.DeviceClass
	for _, class := range classes {
		if name := class.Spec.ExtendedResourceName; name == nil || *name != extended {
			continue
		}
		if newest == nil || cmp.Or(class.CreationTimestamp.Compare(newest.CreationTimestamp.Time), strings.Compare(newest.Name, class.Name)) > 0 {
			newest = class
		}
	}
	return newest.Name
}

// NameOfClass is the name under which claims for devices of a class are counted. No container can request it.
func NameOfClass(class string) corev1.ResourceName {
	return corev1.ResourceName(v1alpha1.ClaimedDevices + class)
}

// Bounds of Faults: how many there are at most, and how many bytes each has.
const (
	MaxFaults = 10
	MaxFault  = 256
)

// Faults says what the Counter does not count, and why. The faults of kinds come last, and each part is sorted.
func (c *Counter) Faults() []string {
	faults, ofKinds := map[string]bool{}, map[corev1.ResourceName]string{}
	kinds, nodes := c.Kinds(), map[corev1.ResourceName]int{}
	for id := range c.reached {
		faults[fmt.Sprintf("devices of the pool %s of driver %s are not counted: not exactly one node reaches them", id.name, id.driver)] = true
	}
	for name := range c.faulty {
		n := c.nodes[name]
		if n == nil {
			continue
		}
		for class, found := range n.classes {
			if found.fault != "" {
				faults[fmt.Sprintf("devices of class %s on node %s are not counted: %s", class, name, found.fault)] = true
			}
		}
		for _, kind := range kinds {
			if fault := cmp.Or(n.kinds[kind].fault, n.kinds[kind].now); fault != "" {
				nodes[kind]++
				ofKinds[kind] = max(ofKinds[kind], fault)
			}
		}
	}
	if extra := len(c.kinds) - maxKinds; extra > 0 {
		faults[fmt.Sprintf("%d kinds of claims are not counted: the ResourceClaimTemplates have more than %d", extra, maxKinds)] = true
	}
	if len(c.kinds) > 0 && !c.implicit {
		faults[anyOrder] = true
	}
	for _, r := range c.rules {
		if r.fault != "" {
			faults[r.fault] = true
		}
	}
	for _, why := range c.unread {
		faults[why] = true
	}
	if len(c.reached) > 0 && len(c.kinds) > 0 {
		faults["claims with selectors, constraints or choices are not counted: there are devices that not exactly one node reaches"] = true
	}
	if extra := len(c.classes) - maxClasses; extra > 0 {
		faults[fmt.Sprintf("%d DeviceClasses are not counted: there are more than %d", extra, maxClasses)] = true
	}
	sorted := slices.Sorted(maps.Keys(faults))
	for _, kind := range slices.Sorted(maps.Keys(ofKinds)) { // Last: users write them, and there is no room for all.
		sorted = append(sorted, fmt.Sprintf("claims are not counted on %d of the nodes: %s: %s", nodes[kind], ofKinds[kind], v1alpha1.WordsOfDeviceClaim(kind)))
	}
	sorted = sorted[:min(len(sorted), MaxFaults)]
	for i, text := range sorted {
		sorted[i] = strings.ToValidUTF8(text[:min(len(text), MaxFault)], "")
	}
	return sorted
}
