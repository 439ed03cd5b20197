// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// features are those that schedulers of Kubernetes 1.36 and 1.37 have. Without ConsumableCapacity another allocator
// would answer, which takes pools at random.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	PartitionableDevices: true, PrioritizedList: true,
}

// Count counts the nodes that may have changed since the last Count. A node without devices is nil. What it has no time
// for, the next Count counts.
func (c *Counter) Count(ctx context.Context) map[string]*Node {
	if isReached := len(c.reached) > 0; isReached != c.isReached {
		c.isReached = isReached
		c.rename() // Kinds are counted, or not.
	}
	if len(c.changed) == 0 {
		return nil
	}
	counted := make(map[string]*Node, len(c.changed))
	places := make([]*place, 0, len(c.changed))
	forClasses, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for name := range c.changed {
		delete(c.faulty, name)
		if c.nodes[name] == nil {
			delete(c.late, name)
			counted[name] = nil
			continue
		}
		p := c.place(name)
		p.countClasses(forClasses)
		counted[name] = p.counted
		places = append(places, p)
	}
	clear(c.changed)
	// Kinds come last, and have a time of their own: what users write must not keep classes from being counted.
	forKinds, cancel := context.WithTimeout(ctx, kindsPatience)
	defer cancel()
	names := c.Kinds()
	for _, p := range places {
		p.countKinds(forKinds, names)
		if !p.late {
			delete(c.late, p.on.Name)
		} else if c.late[p.on.Name]++; c.late[p.on.Name] < mostLate {
			c.changed[p.on.Name] = true
		}
	}
	return counted
}

// place is a node while a Counter counts its devices.
type place struct {
	*node
	counter   *Counter
	counted   *Node
	on        *corev1.Node
	published []*resourceapi.ResourceSlice
	held      []*claim
	// isSimple: each device serves one claim.
	isSimple bool
	// late: there was no time for something.
	late bool
}

func (c *Counter) place(name string) *place {
	p := &place{
		node: c.nodes[name], counter: c, on: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: c.labels[name]}},
		counted: &Node{Total: Amounts{}, Used: Amounts{}, Pods: map[types.NamespacedName]Amounts{}},
	}
	p.published, p.held = c.on(p.node)
	p.isSimple = isSimple(p.published)
	return p
}

// countClasses counts the devices of each class.
func (p *place) countClasses(ctx context.Context) {
	c := p.counter
	if p.classes == nil {
		p.classes = map[string]devicesOf{}
	}
	ask := func(class string, held []*claim) devicesOf {
		found := c.allocator.all(ctx, question{
			on: p.on, claim: c.allocator.device, classes: single{c.classes[class]}, published: p.published, held: held,
			most: maxDevices, steps: maxSteps,
		})
		p.late = p.late || found.late
		return found
	}
	for class, names := range c.classNames() {
		found, known := p.classes[class]
		if !known || found.late {
			found = ask(class, nil)
			p.classes[class] = found
		}
		if found.fault != "" {
			c.faulty[p.on.Name] = true
		}
		p.counted.set(names, found.total, p.held, false, func(held []*claim) int64 {
			if p.isSimple {
				return found.among(held)
			}
			return found.total - min(found.total, ask(class, held).total)
		})
	}
}

// set sets what the node has of a class or kind, and what claims have of it, under all its names. The share of a pod is what
// its leaving alone gives back. With inTurn it is what that gives back when those before it have left.
func (n *Node) set(names []corev1.ResourceName, total int64, held []*claim, inTurn bool, used func([]*claim) int64) {
	all, left := int64(0), slices.Clone(held)
	if total > 0 {
		all = used(held)
	}
	for _, name := range names {
		n.Total[name] = total
		if all > 0 {
			n.Used[name] = all
		}
	}
	if all == 0 {
		return
	}
	pods := map[types.NamespacedName]bool{}
	for _, h := range held {
		if h.pod.Name == "" || pods[h.pod] {
			continue
		}
		pods[h.pod] = true
		rest := slices.DeleteFunc(slices.Clone(left), func(other *claim) bool { return other.pod == h.pod })
		share := all - min(all, used(rest))
		if inTurn {
			left, all = rest, all-share
		}
		if share == 0 {
			continue
		}
		if n.Pods[h.pod] == nil {
			n.Pods[h.pod] = Amounts{}
		}
		for _, name := range names {
			n.Pods[h.pod][name] = share
		}
	}
}

// on returns the slices of the pools of a node, also those of other nodes, because only whole pools count, and the
// claims that have devices of these pools, in an order that depends only on the content.
func (c *Counter) on(n *node) (published []*resourceapi.ResourceSlice, held []*claim) {
	claims := map[types.NamespacedName]*claim{}
	for id := range n.pools {
		for _, made := range c.pools[id].slices {
			published = append(published, made.slice)
		}
		maps.Copy(claims, c.pools[id].claims)
	}
	slices.SortFunc(published, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	keys := slices.SortedFunc(maps.Keys(claims), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		held = append(held, claims[key])
	}
	return published, held
}

// isSimple says whether each device serves one claim, and takes nothing from the others.
func isSimple(published []*resourceapi.ResourceSlice) bool {
	for _, slice := range published {
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			if len(device.ConsumesCounters) > 0 || ptr.Deref(device.AllowMultipleAllocations, false) {
				return false
			}
		}
	}
	return true
}

// among counts the devices that claims have.
func (d *devicesOf) among(held []*claim) int64 {
	taken := map[structured.DeviceID]bool{}
	for _, h := range held {
		for i := range h.results {
			if id := idOf(&h.results[i]); d.ids[id] && !isAdmin(&h.results[i]) {
				taken[id] = true
			}
		}
	}
	return int64(len(taken))
}

func idOf(r *resourceapi.DeviceRequestAllocationResult) structured.DeviceID {
	return structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
}

// isAdmin says whether a result takes nothing away, because it is for monitoring.
func isAdmin(r *resourceapi.DeviceRequestAllocationResult) bool {
	return ptr.Deref(r.AdminAccess, false)
}

// takenBy returns what claims have, as the allocator takes it.
func takenBy(held []*claim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, h := range held {
		for i := range h.results {
			if !isAdmin(&h.results[i]) {
				take(state, &h.results[i])
			}
		}
	}
	return state
}

func take(state structured.AllocatedState, r *resourceapi.DeviceRequestAllocationResult) {
	id := idOf(r)
	if r.ShareID == nil {
		state.AllocatedDevices.Insert(id)
		return
	}
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
}

// allocator asks Kubernetes' allocator.
type allocator struct {
	expressions *cel.Cache
	// device is a claim for one device.
	device []*resourceapi.ResourceClaim
}

func newAllocator() allocator {
	return allocator{device: claimOf(resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "devices", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "devices", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		},
	}}})}
}

// claimOf returns a claim as the allocator takes it.
func claimOf(devices resourceapi.DeviceClaim) []*resourceapi.ResourceClaim {
	const name = "devices"
	return []*resourceapi.ResourceClaim{{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, UID: name}, Spec: resourceapi.ResourceClaimSpec{Devices: devices},
	}}
}

// question is what an allocator is asked: how many equal claims one node can have.
type question struct {
	on        *corev1.Node
	claim     []*resourceapi.ResourceClaim
	classes   structured.DeviceClassLister
	published []*resourceapi.ResourceSlice
	held      []*claim
	// most claims are counted. steps are how many the allocator has for all of them.
	most  int64
	steps int
}

// all takes one claim after the other, until there is no room for another one.
func (a *allocator) all(ctx context.Context, q question) devicesOf {
	if a.expressions == nil { // Most workers have no devices.
		a.expressions = cel.NewCache(2*maxClasses+maxKinds*maxSelectors, cel.Features{EnableConsumableCapacity: true})
	}
	found := devicesOf{ids: map[structured.DeviceID]bool{}}
	steps := &limited{Context: ctx, left: q.steps, most: q.steps}
	state := takenBy(q.held)
	for found.total < q.most {
		allocator, err := structured.NewAllocator(steps, features, state, q.classes, q.published, a.expressions)
		if err != nil {
			return devicesOf{fault: err.Error()}
		}
		allocated, err := allocator.Allocate(steps, q.on, q.claim)
		if errors.Is(err, structured.ErrFailedAllocationOnNode) { // Pools that are not valid have no devices.
			return found
		}
		if err != nil {
			return devicesOf{fault: strings.ToValidUTF8(err.Error(), ""), slow: steps.left < 0, late: ctx.Err() != nil}
		}
		if len(allocated) == 0 {
			return found
		}
		takes := false
		for i := range allocated[0].Devices.Results {
			result := &allocated[0].Devices.Results[i]
			found.ids[idOf(result)] = true
			if !isAdmin(result) {
				take(state, result)
				takes = true
			}
		}
		if found.total++; !takes {
			found.total = q.most
		}
	}
	return found
}

// single has one class under every name, for the claim of allocator.device.
type single struct{ class *resourceapi.DeviceClass }

func (s single) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{s.class}, nil
}

func (s single) Get(string) (*resourceapi.DeviceClass, error) { return s.class, nil }

// lister has the classes of a worker.
type lister map[string]*resourceapi.DeviceClass

func (l lister) List() ([]*resourceapi.DeviceClass, error) {
	return slices.Collect(maps.Values(l)), nil
}

func (l lister) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := l[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("there is no DeviceClass %s", name)
}

// limited is a context that ends after a number of steps. The allocator calls Err once in each step.
type limited struct {
	context.Context
	left, most int
}

func (l *limited) Err() error {
	if l.left--; l.left < 0 {
		return fmt.Errorf("%w: it takes more than %d steps", context.DeadlineExceeded, l.most)
	}
	return l.Context.Err()
}
