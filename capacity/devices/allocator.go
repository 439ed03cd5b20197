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

// Count counts the nodes that may have changed since the last Count. A node without devices is nil.
func (c *Counter) Count(ctx context.Context) map[string]*Node {
	if len(c.changed) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	counted := make(map[string]*Node, len(c.changed))
	for name := range c.changed {
		counted[name] = c.count(ctx, name)
	}
	clear(c.changed)
	return counted
}

// count counts one node.
func (c *Counter) count(ctx context.Context, name string) *Node {
	delete(c.faulty, name)
	n := c.nodes[name]
	if n == nil {
		return nil
	}
	if n.classes == nil {
		n.classes = map[string]devicesOf{}
	}
	published, held := c.on(n)
	simple := isSimple(published)
	counted := &Node{Total: Amounts{}, Used: Amounts{}, Pods: map[types.NamespacedName]Amounts{}}
	for class, names := range c.classNames() {
		found, known := n.classes[class]
		if !known {
			found = c.allocator.all(ctx, name, c.classes[class], published, takenBy(nil))
			n.classes[class] = found
		}
		if found.fault != "" {
			c.faulty[name] = true
		}
		counted.set(names, found.total, held, func(held []*claim) int64 {
			if simple {
				return found.among(held)
			}
			return found.total - min(found.total, c.allocator.all(ctx, name, c.classes[class], published, takenBy(held)).total)
		})
	}
	return counted
}

// set sets what the node has of a class, and what claims have of it, under all names of the class.
func (n *Node) set(names []corev1.ResourceName, total int64, held []*claim, used func([]*claim) int64) {
	all := int64(0)
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
		share := all - used(slices.DeleteFunc(slices.Clone(held), func(other *claim) bool { return other.pod == h.pod }))
		if share <= 0 {
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
		published = slices.AppendSeq(published, maps.Values(c.pools[id].slices))
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
	claims      []*resourceapi.ResourceClaim
}

func newAllocator() allocator {
	const requested = "devices"
	return allocator{
		claims: []*resourceapi.ResourceClaim{{
			ObjectMeta: metav1.ObjectMeta{Namespace: requested, Name: requested, UID: requested},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
				Name: requested, Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: requested, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				},
			}}}},
		}},
	}
}

// all takes devices of a class on a node, until there is no other one.
func (a *allocator) all(
	ctx context.Context, node string, class *resourceapi.DeviceClass, published []*resourceapi.ResourceSlice, state structured.AllocatedState,
) devicesOf {
	if a.expressions == nil { // Most workers have no devices.
		a.expressions = cel.NewCache(2*maxClasses, cel.Features{EnableConsumableCapacity: true})
	}
	found := devicesOf{ids: map[structured.DeviceID]bool{}}
	ctx = &limited{Context: ctx, left: maxSteps}
	on := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for found.total < maxDevices {
		allocator, err := structured.NewAllocator(ctx, features, state, lister{class}, published, a.expressions)
		if err != nil {
			return devicesOf{fault: err.Error()}
		}
		allocated, err := allocator.Allocate(ctx, on, a.claims)
		if errors.Is(err, structured.ErrFailedAllocationOnNode) { // Pools that are not valid have no devices.
			return found
		}
		if err != nil {
			return devicesOf{fault: strings.ToValidUTF8(err.Error(), "")}
		}
		if len(allocated) == 0 {
			return found
		}
		result := &allocated[0].Devices.Results[0]
		take(state, result)
		found.ids[idOf(result)] = true
		found.total++
	}
	return found
}

// lister has one class under every name, since the claim of an allocator has no other.
type lister struct{ class *resourceapi.DeviceClass }

func (l lister) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{l.class}, nil
}

func (l lister) Get(string) (*resourceapi.DeviceClass, error) { return l.class, nil }

// limited is a context that ends after a number of steps. The allocator calls Err once in each step.
type limited struct {
	context.Context
	left int
}

func (l *limited) Err() error {
	if l.left--; l.left < 0 {
		return fmt.Errorf("%w: it takes more than %d steps", context.DeadlineExceeded, maxSteps)
	}
	return l.Context.Err()
}
