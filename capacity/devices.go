// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/capacity/devices"
)

// DeviceKind is a kind of Dynamic Resource Allocation that a Tally counts.
type DeviceKind struct {
	Resource, Kind string
	Namespaced     bool
	New            func() client.Object
}

// DeviceKinds are the kinds whose events DeviceHandler takes. They have the version DeviceVersion.
var DeviceKinds = []DeviceKind{
	{"resourceslices", "ResourceSlice", false, func() client.Object { return &resourceapi.ResourceSlice{} }},
	{"deviceclasses", "DeviceClass", false, func() client.Object { return &resourceapi.DeviceClass{} }},
	{"resourceclaims", "ResourceClaim", true, func() client.Object { return &resourceapi.ResourceClaim{} }},
}

// TemplateKind is a kind whose events DeviceHandler takes too. Where it cannot be read, claims count with the number of
// devices that they need at the least.
var TemplateKind = DeviceKind{
	"resourceclaimtemplates", "ResourceClaimTemplate", true, func() client.Object { return &resourceapi.ResourceClaimTemplate{} },
}

// DeviceVersion is the version of DeviceKinds and TemplateKind. Kubernetes serves it from 1.34 on.
var DeviceVersion = resourceapi.SchemeGroupVersion

// The kind by which an admin of a worker taints devices: DeviceHandler takes its events as unstructured objects. A worker
// serves it in at most one of TaintRuleVersions that counts, the first.
const (
	TaintRules    = "devicetaintrules"
	TaintRuleKind = "DeviceTaintRule"
)

// TaintRuleVersions are the versions of TaintRules, by preference. Kubernetes 1.37 serves the first. The others have to be
// enabled in earlier releases, together with the feature gate DRADeviceTaintRules.
var TaintRuleVersions = []string{"v1", "v1beta2", "v1alpha3"}

// taintRulesSince is the release that serves the first of TaintRuleVersions.
var taintRulesSince = version.MajorMinor(1, 37)

// MayServeTaintRules says whether an API server of a Kubernetes release may serve TaintRules in a version that it serves,
// so that it need not be asked where it does not.
func MayServeTaintRules(gitVersion, apiVersion string) bool {
	release, err := version.ParseGeneric(gitVersion)
	return apiVersion != TaintRuleVersions[0] || err == nil && release.AtLeast(taintRulesSince)
}

// NewTaintRule returns an empty object of TaintRules.
func NewTaintRule(apiVersion string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: DeviceVersion.Group, Version: apiVersion, Kind: TaintRuleKind})
	return object
}

// deviceCount counts the devices of a Tally. It computes and has a lock of its own, so that nobody who takes a Snapshot
// waits.
type deviceCount struct {
	mu      sync.Mutex
	counter *devices.Counter
}

// implicitSince is the release whose scheduler takes the name of a DeviceClass for an extended resource.
var implicitSince = version.MajorMinor(1, 36)

// SetKubernetes takes the version of the worker's API server, for example v1.36.3.
func (t *Tally) SetKubernetes(gitVersion string) {
	release, err := version.ParseGeneric(gitVersion)
	t.countDevices(func(c *devices.Counter) { c.SetImplicit(err == nil && release.AtLeast(implicitSince)) })
}

// SetUnread says why nobody gives the Tally the events of a resource although the worker serves it. Uncounted has the text.
func (t *Tally) SetUnread(resource, why string) {
	t.countDevices(func(c *devices.Counter) { c.SetUnread(resource, why) })
}

// Uncounted is Snapshot.Uncounted.
func (t *Tally) Uncounted() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked.uncounted
}

// countDevices changes the counter, and takes over the nodes whose devices are others then.
func (t *Tally) countDevices(change func(*devices.Counter)) {
	if t.recount(change) {
		t.notify()
	}
}

func (t *Tally) recount(change func(*devices.Counter)) (changed bool) {
	t.devices.mu.Lock()
	defer t.devices.mu.Unlock() // Also after a panic.
	change(t.devices.counter)
	counted := t.devices.counter.Count(context.Background()) //nolint:forbidigo // Event handlers have no context.
	uncounted, claims := t.devices.counter.Faults(), t.devices.counter.Kinds()
	return t.change(func() bool {
		changed := !slices.Equal(t.locked.uncounted, uncounted)
		t.locked.uncounted = uncounted
		if !slices.Equal(t.locked.claims, claims) {
			t.locked.claims, changed = claims, true
			for _, n := range t.locked.nodes {
				n.shared = nil
			}
		}
		for name, found := range counted {
			n := t.nodeLocked(name)
			if !reflect.DeepEqual(n.devices, found) {
				n.devices, n.shared, changed = found, nil, true
			}
			t.forgetLocked(name, n)
		}
		return changed
	})
}

// addDevices adds the devices of a node to what it has and uses. Where a device plugin has a resource, the scheduler
// looks for no devices under this name. Where it has none, the claims of pods count, and not the pods' requests. A node
// has every kind of claims that is counted, with 0 if such a claim never fits there.
func (n *node) addDevices(
	state *NodeState, claims []corev1.ResourceName, gangOf func(pod types.NamespacedName) types.NamespacedName,
) {
	if n.devices == nil && len(claims) == 0 {
		return
	}
	state.Allocatable = maps.Clone(state.Allocatable)
	for _, name := range claims {
		state.Allocatable[name] = 0
	}
	if n.devices == nil {
		return
	}
	state.Gangs = maps.Clone(state.Gangs)
	for gang, used := range state.Gangs {
		state.Gangs[gang] = maps.Clone(used)
	}
	for name, total := range n.devices.Total {
		if n.state.Allocatable[name] != 0 {
			continue
		}
		delete(state.Used, name)
		for _, used := range state.Gangs {
			delete(used, name)
		}
		if total > 0 {
			state.Allocatable[name] = total
			state.Used.add(Resources{name: n.devices.Used[name]}, 1)
		}
		for pod, has := range n.devices.Pods {
			if used := state.Gangs[gangOf(pod)]; used != nil && total > 0 {
				used.add(Resources{name: has[name]}, 1)
			}
		}
	}
}

// DeviceHandler returns the event handler for informers of the DeviceKinds, of TemplateKind and of TaintRules.
func (t *Tally) DeviceHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    t.setDevices,
		UpdateFunc: func(_, obj any) { t.setDevices(obj) },
		DeleteFunc: t.deleteDevices,
	}
}

func (t *Tally) setDevices(obj any) {
	t.countDevices(func(c *devices.Counter) {
		switch o := obj.(type) {
		case *resourceapi.ResourceSlice:
			c.SetSlice(o)
		case *resourceapi.DeviceClass:
			c.SetClass(o)
		case *resourceapi.ResourceClaim:
			c.SetClaim(o)
		case *unstructured.Unstructured:
			c.SetRule(o)
		case *resourceapi.ResourceClaimTemplate:
			c.SetTemplate(o)
		}
	})
}

func (t *Tally) deleteDevices(obj any) {
	key := keyOf(obj)
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	t.countDevices(func(c *devices.Counter) {
		switch obj.(type) {
		case *resourceapi.ResourceSlice:
			c.DeleteSlice(key.Name)
		case *resourceapi.DeviceClass:
			c.DeleteClass(key.Name)
		case *resourceapi.ResourceClaim:
			c.DeleteClaim(key)
		case *unstructured.Unstructured:
			c.DeleteRule(key.Name)
		case *resourceapi.ResourceClaimTemplate:
			c.DeleteTemplate(key)
		}
	})
}

// StripDevices keeps the fields of a DeviceKind, of TemplateKind or of TaintRules that count.
func StripDevices(in any) (any, error) {
	switch o := in.(type) {
	case *resourceapi.ResourceSlice:
		return &resourceapi.ResourceSlice{ObjectMeta: bareMeta(o), Spec: o.Spec}, nil
	case *resourceapi.DeviceClass:
		return &resourceapi.DeviceClass{ObjectMeta: bareMeta(o), Spec: resourceapi.DeviceClassSpec{
			Selectors: o.Spec.Selectors, ExtendedResourceName: o.Spec.ExtendedResourceName,
		}}, nil
	case *resourceapi.ResourceClaim:
		stripped := &resourceapi.ResourceClaim{ObjectMeta: bareMeta(o)}
		stripped.OwnerReferences = slices.Clone(o.OwnerReferences)
		if o.Status.Allocation != nil {
			stripped.Status.Allocation = &resourceapi.AllocationResult{
				Devices: resourceapi.DeviceAllocationResult{Results: o.Status.Allocation.Devices.Results},
			}
		}
		return stripped, nil
	case *unstructured.Unstructured:
		if o.GetKind() != TaintRuleKind {
			return in, nil
		}
		stripped := &unstructured.Unstructured{Object: map[string]any{"spec": o.Object["spec"]}}
		stripped.SetGroupVersionKind(o.GroupVersionKind())
		stripped.SetName(o.GetName())
		stripped.SetUID(o.GetUID())
		stripped.SetResourceVersion(o.GetResourceVersion())
		return stripped, nil
	case *resourceapi.ResourceClaimTemplate:
		claimed := &o.Spec.Spec.Devices
		return &resourceapi.ResourceClaimTemplate{ObjectMeta: bareMeta(o), Spec: resourceapi.ResourceClaimTemplateSpec{
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: claimed.Requests, Constraints: claimed.Constraints}},
		}}, nil
	}
	return in, nil
}

func bareMeta(o client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		CreationTimestamp: o.GetCreationTimestamp(),
	}
}
