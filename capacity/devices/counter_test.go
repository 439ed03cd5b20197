// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/capacity/devices"
	"github.com/trainyard/trainyard/test/check"
)

const (
	driver = "gpu.example.com"
	gpu    = corev1.ResourceName("example.com/gpu")
)

// slice is a ResourceSlice of a pool of the name of its node, with devices d0, d1 and so on.
func slice(node string, count int, changes ...func(*resourceapi.ResourceSlice)) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range count {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
			Name:       fmt.Sprint("d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: ptr.To("a")}},
		})
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func tainted(device int, effect resourceapi.DeviceTaintEffect) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		s.Spec.Devices[device].Taints = []resourceapi.DeviceTaint{{Key: "sick", Effect: effect}}
	}
}

func named(name string, generation, slices int64) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		s.Name, s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = name, generation, slices
	}
}

// class is a DeviceClass of all devices of the driver that serves example.com/gpu, if extended is true.
func class(name string, extended bool, expressions ...string) *resourceapi.DeviceClass {
	c := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(1000, 0)}}
	if extended {
		c.Spec.ExtendedResourceName = ptr.To(string(gpu))
	}
	for _, e := range append([]string{`device.driver == "` + driver + `"`}, expressions...) {
		c.Spec.Selectors = append(c.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: e}})
	}
	return c
}

// held is a claim of a pod of its name that has devices of a node.
func held(pod, node string, names ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: pod + "-gpu", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod}},
	}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, name := range names {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: node, Device: name})
	}
	return c
}

func TestCount(t *testing.T) {
	twoHalves := func(s *resourceapi.ResourceSlice) {
		consumed := func(device int, amount string) {
			s.Spec.Devices[device].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
				CounterSet: "memory", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(amount)}},
			}}
		}
		consumed(0, "80Gi")
		consumed(1, "40Gi")
		consumed(2, "40Gi")
		s.Spec.Pool.ResourceSliceCount = 2
	}
	counters := func(s *resourceapi.ResourceSlice) {
		s.Name, s.Spec.Pool.ResourceSliceCount = "counters", 2
		s.Spec.SharedCounters = []resourceapi.CounterSet{{
			Name: "memory", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("80Gi")}},
		}}
	}
	shared := func(s *resourceapi.ResourceSlice) {
		s.Spec.Devices[0].AllowMultipleAllocations = ptr.To(true)
		s.Spec.Devices[0].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {
			Value: resource.MustParse("80Gi"), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("20Gi"))},
		}}
	}
	share := held("p", "a", "d0")
	share.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("s"))
	share.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		"memory": resource.MustParse("20Gi"),
	}
	admin := held("p", "a", "d0")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	reached := func(s *resourceapi.ResourceSlice) { s.Spec.NodeName, s.Spec.AllNodes = nil, ptr.To(true) }
	withoutModel := func(s *resourceapi.ResourceSlice) { s.Spec.Devices[1].Attributes = nil }

	type slices = []*resourceapi.ResourceSlice
	cases := map[string]struct {
		reason      string
		slices      slices
		class       *resourceapi.DeviceClass
		claims      []*resourceapi.ResourceClaim
		total, used int64
		fault       string
	}{
		"Free":   {reason: "Each device counts.", slices: slices{slice("a", 8)}, total: 8},
		"Taken":  {reason: "A claim has its devices.", slices: slices{slice("a", 8)}, claims: []*resourceapi.ResourceClaim{held("p", "a", "d0", "d3")}, total: 8, used: 2},
		"Other":  {reason: "Devices of another node take nothing.", slices: slices{slice("a", 2)}, claims: []*resourceapi.ResourceClaim{held("p", "b", "d0")}, total: 2},
		"Gone":   {reason: "An id that no slice publishes takes nothing.", slices: slices{slice("a", 2)}, claims: []*resourceapi.ResourceClaim{held("p", "a", "d7")}, total: 2},
		"Admin":  {reason: "Access for monitoring takes nothing.", slices: slices{slice("a", 2)}, claims: []*resourceapi.ResourceClaim{admin}, total: 2},
		"Sick":   {reason: "No plain request tolerates a taint.", slices: slices{slice("a", 4, tainted(0, "NoSchedule"), tainted(1, "NoExecute"))}, total: 2},
		"Silent": {reason: "A taint without effect keeps nobody away.", slices: slices{slice("a", 2, tainted(0, "None"))}, total: 2},
		"SickAndTaken": {
			reason: "A sick device that is taken is not free, and not there.", slices: slices{slice("a", 2, tainted(0, "NoSchedule"))},
			claims: []*resourceapi.ResourceClaim{held("p", "a", "d0")}, total: 1,
		},
		"Incomplete": {reason: "A pool of which a slice is missing has no devices.", slices: slices{slice("a", 4, named("a", 1, 2))}},
		"Newest": {
			reason: "Only the newest generation counts.",
			slices: slices{slice("a", 4, named("old", 1, 1)), slice("a", 2, named("new", 2, 1))}, total: 2,
		},
		"NewestIncomplete": {
			reason: "The old generation does not come back.",
			slices: slices{slice("a", 4, named("old", 1, 1)), slice("a", 2, named("new", 2, 2))},
		},
		"Partitions": {reason: "The whole device and its halves exclude each other.", slices: slices{slice("a", 3, twoHalves), slice("a", 0, counters)}, total: 1},
		"HalfTaken": {
			reason: "One half leaves the other.", slices: slices{slice("a", 3, twoHalves), slice("a", 0, counters)},
			claims: []*resourceapi.ResourceClaim{held("p", "a", "d1")}, total: 1,
		},
		"Shares":     {reason: "A request without an amount takes the default.", slices: slices{slice("a", 1, shared)}, total: 4},
		"ShareTaken": {reason: "A share leaves the others.", slices: slices{slice("a", 1, shared)}, claims: []*resourceapi.ResourceClaim{share}, total: 4, used: 1},
		"Selector": {
			reason: "Only what the class selects counts.", slices: slices{slice("a", 2)},
			class: class("gpu", true, `device.attributes["gpu.example.com"].model == "b"`),
		},
		"SelectorFails": {
			reason: "Nobody knows what the scheduler would do with the others.", slices: slices{slice("a", 2, withoutModel)},
			class: class("gpu", true, `device.attributes["gpu.example.com"].model == "a"`), fault: "no such key: model",
		},
		"Reached": {
			reason: "Devices that several nodes reach are not devices of each.", slices: slices{slice("a", 2, reached), slice("b", 0)},
			fault: "not exactly one node reaches them",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := devices.NewCounter()
			for _, s := range tc.slices {
				c.SetSlice(s)
			}
			for _, held := range tc.claims {
				c.SetClaim(held)
			}
			if tc.class == nil {
				tc.class = class("gpu", true)
			}
			c.SetClass(tc.class)
			n := c.Count(t.Context())["a"]
			if n == nil {
				n = &devices.Node{}
			}
			check.Equal(t, [2]int64{tc.total, tc.used}, [2]int64{n.Total[gpu], n.Used[gpu]}, "%s", tc.reason)
			check.Equal(t, tc.fault != "", len(c.Faults()) == 1 && strings.Contains(c.Faults()[0], tc.fault), "faults: %v", c.Faults())
		})
	}
}

// TestNames checks under which names devices are counted.
func TestNames(t *testing.T) {
	c := devices.NewCounter()
	c.SetSlice(slice("a", 2))
	c.SetClass(class("gpu", true))
	names := func() map[corev1.ResourceName]int64 { return c.Count(t.Context())["a"].Total }
	claims := devices.NameOfClass("gpu")
	check.Equal(t, fmt.Sprint(map[corev1.ResourceName]int64{gpu: 2, claims: 2}), fmt.Sprint(names()), "before 1.36")
	c.SetImplicit(true)
	implicit := corev1.ResourceName("deviceclass.resource.kubernetes.io/gpu")
	check.Equal(t, fmt.Sprint(map[corev1.ResourceName]int64{gpu: 2, claims: 2, implicit: 2}), fmt.Sprint(names()), "from 1.36 on")
	// The newest class has the name, and its devices alone.
	newer := class("newer", true, `device.attributes["gpu.example.com"].model == "b"`)
	newer.CreationTimestamp.Time = newer.CreationTimestamp.Add(time.Second)
	c.SetClass(newer)
	check.Equal(t, int64(0), names()[gpu], "devices of the newest class")
	c.DeleteClass("newer")
	check.Equal(t, int64(2), names()[gpu], "devices of the class that is left")
}

// TestChanges checks that what goes and comes back is counted again, and only on its node.
func TestChanges(t *testing.T) {
	c := devices.NewCounter()
	c.SetClass(class("gpu", true))
	c.SetSlice(slice("a", 2))
	c.SetSlice(slice("b", 4))
	c.SetClaim(held("p", "a", "d0"))
	check.Equal(t, 2, len(c.Count(t.Context())), "nodes")
	check.Equal(t, 0, len(c.Count(t.Context())), "nothing has changed")

	c.DeleteSlice("a")
	counted := c.Count(t.Context())
	node, changed := counted["a"]
	check.Equal(t, true, changed && node == nil, "the node has no devices any more")
	c.SetSlice(slice("a", 2))
	n := c.Count(t.Context())["a"]
	check.Equal(t, int64(1), n.Used[gpu], "the claim has its device still")
	check.Equal(t, int64(1), n.Pods[types.NamespacedName{Namespace: "team", Name: "p"}][gpu], "it is that of the pod")

	c.DeleteClaim(types.NamespacedName{Namespace: "team", Name: "p-gpu"})
	counted = c.Count(t.Context())
	check.Equal(t, 1, len(counted), "nodes that a claim touches")
	check.Equal(t, int64(0), counted["a"].Used[gpu], "used without the claim")
}

// taintRule is a DeviceTaintRule with a selector and an effect.
func taintRule(t *testing.T, name, selector, effect string) *unstructured.Unstructured {
	t.Helper()
	if selector != "" {
		selector = `"deviceSelector": ` + selector + `, `
	}
	object := &unstructured.Unstructured{}
	check.Must(t, object.UnmarshalJSON([]byte(`{
		"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "`+name+`"},
		"spec": {`+selector+`"taint": {"key": "sick", "effect": "`+effect+`"}}}`)))
	return object
}

// TestRules checks which devices of two nodes with four each are left when a rule taints some.
func TestRules(t *testing.T) {
	cases := map[string]struct {
		reason           string
		version          string
		selector, effect string
		a, b             int64
		fault            string
	}{
		"Driver":      {reason: "All devices of a driver.", selector: `{"driver": "gpu.example.com"}`, effect: "NoSchedule"},
		"OtherDriver": {reason: "No device of another driver.", selector: `{"driver": "nic.example.com"}`, effect: "NoSchedule", a: 4, b: 4},
		"Pool":        {reason: "All devices of a pool.", selector: `{"pool": "a"}`, effect: "NoExecute", b: 4},
		"Device":      {reason: "The devices of a name, in all pools.", selector: `{"device": "d3"}`, effect: "NoSchedule", a: 3, b: 3},
		"OneDevice": {
			reason: "All parts of a selector must match.", selector: `{"driver": "gpu.example.com", "pool": "b", "device": "d0"}`,
			effect: "NoSchedule", a: 4, b: 3,
		},
		"OtherPool":  {reason: "A part that does not match is enough.", selector: `{"pool": "c", "device": "d0"}`, effect: "NoSchedule", a: 4, b: 4},
		"Everything": {reason: "An empty selector.", selector: `{}`, effect: "NoSchedule"},
		"NoSelector": {reason: "It taints nothing.", effect: "NoSchedule", a: 4, b: 4},
		"NoSelectorInBeta": {
			reason: "Before 1.37 the scheduler takes it for an empty one.", version: "v1beta2", effect: "NoSchedule",
		},
		"NoEffect": {reason: "A taint without effect keeps nobody away.", selector: `{"pool": "a"}`, effect: "None", a: 4, b: 4},
		"Unknown": {
			reason: "Nobody knows what it selects.", selector: `{"pool": "a", "deviceClassName": "gpu"}`, effect: "NoSchedule", a: 4, b: 4,
			fault: `the DeviceTaintRule r is not applied: `,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rule := taintRule(t, "r", tc.selector, tc.effect)
			if tc.version != "" {
				rule.SetAPIVersion("resource.k8s.io/" + tc.version)
			}
			// The order of events does not matter.
			for _, first := range []bool{true, false} {
				c := devices.NewCounter()
				c.SetClass(class("gpu", true))
				if first {
					c.SetRule(rule)
				}
				c.SetSlice(slice("a", 4))
				c.SetSlice(slice("b", 4))
				if !first {
					c.Count(t.Context())
					c.SetSlice(slice("b", 4)) // So that there is something to count in each case.
					c.SetSlice(slice("a", 4))
					c.SetRule(rule)
				}
				counted := c.Count(t.Context())
				check.Equal(t, [2]int64{tc.a, tc.b}, [2]int64{counted["a"].Total[gpu], counted["b"].Total[gpu]}, "%s rule first: %t", tc.reason, first)
				check.Equal(t, tc.fault != "", len(c.Faults()) == 1 && strings.HasPrefix(c.Faults()[0], tc.fault), "faults: %v", c.Faults())
			}
		})
	}
}

// TestRuleChanges checks that the nodes of a rule, and no others, are counted again when the rule changes.
func TestRuleChanges(t *testing.T) {
	c := devices.NewCounter()
	c.SetClass(class("gpu", true))
	published := slice("a", 4, tainted(0, "NoSchedule"))
	c.SetSlice(published)
	c.SetSlice(slice("b", 4))
	c.SetClaim(held("p", "a", "d1"))
	c.Count(t.Context())
	expect := func(what string, nodes int, a, used int64) {
		t.Helper()
		counted := c.Count(t.Context())
		check.Equal(t, nodes, len(counted), "nodes that are counted again: %s", what)
		if counted["a"] != nil {
			check.Equal(t, [2]int64{a, used}, [2]int64{counted["a"].Total[gpu], counted["a"].Used[gpu]}, "%s", what)
		}
	}
	c.SetRule(taintRule(t, "r", `{"pool": "a", "device": "d1"}`, "NoSchedule"))
	expect("a taken device becomes sick", 1, 2, 0)
	evicting := taintRule(t, "r", `{"pool": "a", "device": "d1"}`, "NoSchedule")
	evicting.Object["status"] = map[string]any{"conditions": []any{}}
	c.SetRule(evicting)
	expect("its status does not matter", 0, 0, 0)
	c.SetRule(taintRule(t, "other", `{"pool": "a", "device": "d1"}`, "NoExecute"))
	expect("two rules for a device", 1, 2, 0)
	c.DeleteRule("r")
	expect("one of two rules is gone", 1, 2, 0)
	c.SetRule(taintRule(t, "other", `{"device": "d2"}`, "NoSchedule"))
	expect("another device", 2, 2, 1)
	c.SetSlice(slice("a", 5, tainted(0, "NoSchedule")))
	expect("the driver publishes one device more", 1, 3, 1)
	c.DeleteRule("other")
	expect("no rule is left", 2, 4, 1)
	check.Equal(t, 1, len(published.Spec.Devices[0].Taints)+len(published.Spec.Devices[1].Taints), "taints of what the driver has published")

	c.SetUnread("rules", "nobody may read them")
	check.Diff(t, []string{"nobody may read them"}, c.Faults(), "faults")
	c.SetUnread("rules", "")
	check.Equal(t, 0, len(c.Faults()), "faults when they can be read")
}

// TestDeadline checks that a search that takes too long ends, and is told.
func TestDeadline(t *testing.T) {
	c := devices.NewCounter()
	c.SetClass(class("gpu", true))
	c.SetSlice(slice("a", 2))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Equal(t, int64(0), c.Count(ctx)["a"].Total[gpu], "devices")
	check.Equal(t, 1, len(c.Faults()), "faults")
}

// TestBounds: a worker chooses how many classes it has, and the words of its errors.
func TestBounds(t *testing.T) {
	c := devices.NewCounter()
	for i := range 70 {
		c.SetClass(class(fmt.Sprintf("c%02d", i), false, fmt.Sprintf(`device.attributes["gpu.example.com"].%s == "a"`, strings.Repeat("x", 400))))
	}
	for i := range 3 {
		c.SetSlice(slice(fmt.Sprint("n", i), 1))
	}
	n := c.Count(t.Context())["n0"]
	check.Equal(t, 64, len(n.Total), "names of classes that are counted")
	faults := c.Faults()
	check.Equal(t, devices.MaxFaults, len(faults), "faults")
	check.Equal(t, "6 DeviceClasses are not counted: there are more than 64", faults[0], "the first")
	for _, fault := range faults {
		check.Equal(t, true, len(fault) <= devices.MaxFault, "length of %q", fault)
	}
}
