// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// anyOrder is what Faults says of schedulers before Kubernetes 1.36, which take the pools of a node in any order.
const anyOrder = "claims with selectors, constraints or choices are counted as Kubernetes 1.36 hands devices out; this scheduler is " +
	"older, so on nodes with several pools the number is the most that may fit"

// tooSlow is the fault of a kind whose number nobody knows in time.
const tooSlow = "it takes too long to know"

// kind is claims of equal requests and constraints. They fit on the same nodes.
type kind struct {
	templates map[types.NamespacedName]bool
	claim     []*resourceapi.ResourceClaim
	classes   map[string]bool
	// least is how many devices a claim has at the least.
	least int64
	// requests have a number of devices each. They are all of the claim if whole is true.
	requests []request
	whole    bool
	// slow is how often the allocator has needed too many steps.
	slow int
}

// request is the requests of a claim that are equal, and may have the same devices.
type request struct {
	key   string
	claim []*resourceapi.ResourceClaim
	count int64
}

// SetTemplate takes a ResourceClaimTemplate. The Counter keeps its requests: do not change them.
func (c *Counter) SetTemplate(template *resourceapi.ResourceClaimTemplate) {
	key := types.NamespacedName{Namespace: template.Namespace, Name: template.Name}
	name := NameOfClaim(&template.Spec.Spec)
	if c.templates[key] == name {
		return
	}
	c.DeleteTemplate(key)
	if name == "" {
		return
	}
	if c.kinds[name] == nil {
		c.kinds[name] = kindOf(&template.Spec.Spec.Devices)
		c.rename()
	}
	c.templates[key] = name
	c.kinds[name].templates[key] = true
}

// DeleteTemplate takes the deletion of a ResourceClaimTemplate.
func (c *Counter) DeleteTemplate(key types.NamespacedName) {
	name := c.templates[key]
	k := c.kinds[name]
	if k == nil {
		return
	}
	delete(c.templates, key)
	delete(k.templates, key)
	if len(k.templates) > 0 {
		return
	}
	delete(c.kinds, name)
	for _, n := range c.nodes {
		delete(n.kinds, name)
		n.requests = nil // Other kinds may share some, and count them again.
	}
	c.rename()
}

// Kinds returns the names of the claims that are counted, sorted. There are none while several nodes reach a pool: a claim
// may have a device of that pool, and it counts on no node.
func (c *Counter) Kinds() []corev1.ResourceName {
	if len(c.reached) > 0 {
		return nil
	}
	sorted := slices.Sorted(maps.Keys(c.kinds))
	return sorted[:min(len(sorted), maxKinds)]
}

func kindOf(devices *resourceapi.DeviceClaim) *kind {
	k := &kind{
		templates: map[types.NamespacedName]bool{}, claim: claimOf(*devices), classes: map[string]bool{}, whole: len(devices.Constraints) == 0,
	}
	selectors := 0
	for i := range devices.Requests {
		least := int64(0)
		for at, choice := range exactlyOf(&devices.Requests[i]) {
			k.classes[choice.DeviceClassName] = true
			selectors += len(choice.Selectors)
			if count := leastOf(choice.AllocationMode, choice.Count); at == 0 || count < least {
				least = count
			}
		}
		k.least += least
		k.add(devices.Requests[i].Exactly)
	}
	if selectors > maxSelectors {
		k.slow = mostSlow
	}
	k.whole = k.whole && len(k.requests) == 1
	return k
}

// add adds a request whose number of devices is known.
func (k *kind) add(r *resourceapi.ExactDeviceRequest) {
	if r == nil || r.AllocationMode == resourceapi.DeviceAllocationModeAll || ptr.Deref(r.AdminAccess, false) {
		k.whole = false
		return
	}
	one := *r
	one.Count = 1
	key, err := json.Marshal(one)
	if err != nil {
		k.whole = false
		return
	}
	at := slices.IndexFunc(k.requests, func(other request) bool { return other.key == string(key) })
	if at < 0 {
		at = len(k.requests)
		k.requests = append(k.requests, request{key: string(key), claim: claimOf(resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "devices", Exactly: &one}},
		})})
	}
	k.requests[at].count += leastOf(r.AllocationMode, r.Count)
}

// countKinds counts the claims of these kinds. Where nobody knows whether they fit, they are as many as can be counted.
func (p *place) countKinds(ctx context.Context, names []corev1.ResourceName) {
	c := p.counter
	spent, took, began := make(map[*kind]time.Duration, len(names)), time.Duration(0), c.clock.Now()
	defer func() {
		for k, used := range spent {
			if took >= kindPatience && used >= kindPatience/20 { // The kinds that make this node slow.
				k.slow++
			}
		}
	}()
	for _, name := range names {
		k := c.kinds[name]
		if p.kinds == nil {
			p.kinds = map[corev1.ResourceName]devicesOf{}
		}
		empty, known := p.kinds[name]
		if !known || empty.fault != "" {
			empty = p.fitting(ctx, k, nil)
		}
		free := empty
		if len(p.held) > 0 && empty.fault == "" {
			free = p.fitting(ctx, k, p.held)
		}
		total := max(empty.total, free.total) // What is taken can make the allocator choose better.
		if empty.now = free.fault; empty.now != "" {
			c.faulty[p.on.Name] = true
			free.total, total = maxDevices, maxDevices
		}
		p.late = p.late || empty.late || free.late
		p.kinds[name] = empty
		// In turn, so that the shares add up to what all have: two pods can keep a claim from fitting though each of them alone
		// does not.
		p.counted.set([]corev1.ResourceName{name}, total, p.held, true, func(held []*claim) int64 {
			switch {
			case len(held) == len(p.held):
				return total - free.total
			case len(held) == 0:
				return total - min(total, empty.total)
			}
			rest := p.fitting(ctx, k, held)
			if rest.fault != "" {
				return total - free.total // Nobody knows that the pod gives anything back.
			}
			return total - min(total, rest.total)
		})
		spent[k] = c.clock.Since(began) - took
		took += spent[k]
	}
}

// fitting counts how many claims of a kind fit beside others.
func (p *place) fitting(ctx context.Context, k *kind, held []*claim) devicesOf {
	c := p.counter
	for class := range k.classes {
		if c.classes[class] == nil {
			return devicesOf{}
		}
	}
	if k.least > resourceapi.AllocationResultsMaxSize {
		return devicesOf{} // The scheduler refuses it.
	}
	switch {
	case k.slow >= mostSlow:
		return devicesOf{fault: tooSlow}
	case ctx.Err() != nil:
		return devicesOf{fault: tooSlow, late: true}
	}
	asked, cancel := context.WithTimeout(ctx, kindPatience)
	defer cancel()
	most := p.mostBy(asked, k, held)
	if most == 0 || k.whole && p.isSimple && most < maxDevices {
		return devicesOf{total: most}
	}
	q := question{
		on: p.on, claim: k.claim, classes: lister(c.classes), published: p.published, held: held, most: most, steps: maxKindSteps,
	}
	inAnyOrder := !c.implicit && len(p.pools) > 1
	if inAnyOrder {
		q.most = 1 // Whether there is room for one does not depend on the order of the pools.
	}
	found := c.allocator.all(asked, q)
	if found.slow {
		k.slow++
	}
	if inAnyOrder && found.total == 1 {
		found.total = most
	}
	return found
}

// mostBy bounds the number of claims by the number of devices that their requests can have. Without that the allocator
// would try all orders in vain where a few devices are missing. It knows nothing where devices share something.
func (p *place) mostBy(ctx context.Context, k *kind, held []*claim) int64 {
	most := int64(maxDevices)
	if !p.isSimple {
		return most
	}
	for i := range k.requests {
		r := &k.requests[i]
		found, known := p.requests[r.key]
		if !known {
			found = p.counter.allocator.all(ctx, question{
				on: p.on, claim: r.claim, classes: lister(p.counter.classes), published: p.published, most: maxDevices, steps: maxKindSteps,
			})
			if p.requests == nil {
				p.requests = map[string]devicesOf{}
			}
			if !found.late {
				p.requests[r.key] = found
			}
		}
		if found.fault == "" {
			most = min(most, (found.total-found.among(held))/r.count)
		}
	}
	return most
}
