// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/capacity/devices"
	"github.com/trainyard/trainyard/test/check"
)

// claimed is a template of claims for these requests.
func claimed(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}}},
	}
}

// exactly requests a number of devices of the class gpu that are of a model, or any model if it is empty.
func exactly(count int64, model string, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	r := &resourceapi.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count, Selectors: ofModel(model),
	}
	for _, change := range changes {
		change(r)
	}
	return resourceapi.DeviceRequest{Name: "gpus", Exactly: r}
}

func ofModel(model string) []resourceapi.DeviceSelector {
	if model == "" {
		return nil
	}
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf("device.attributes[%q].model == %q", driver, model),
	}}}
}

// models gives the devices of a slice models.
func models(of ...string) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		for i, model := range of {
			s.Spec.Devices[i].Attributes["model"] = resourceapi.DeviceAttribute{StringValue: ptr.To(model)}
		}
	}
}

func TestKinds(t *testing.T) {
	all := func(r *resourceapi.ExactDeviceRequest) {
		r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeAll, 0
	}
	tolerant := func(r *resourceapi.ExactDeviceRequest) {
		r.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	}
	admin := func(r *resourceapi.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) }
	other := func(r *resourceapi.ExactDeviceRequest) { r.DeviceClassName = "nic" }
	ofOneModel := func(request resourceapi.DeviceRequest) *resourceapi.ResourceClaimTemplate {
		template := claimed("t", request)
		template.Spec.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(driver + "/model"))}}
		return template
	}
	choice := claimed("t", resourceapi.DeviceRequest{Name: "gpus", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "good", DeviceClassName: "gpu", Count: 1, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Selectors: ofModel("b")},
		{Name: "many", DeviceClassName: "gpu", Count: 2, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Selectors: ofModel("a")},
	}})
	shared := func(s *resourceapi.ResourceSlice) {
		s.Spec.Devices[0].AllowMultipleAllocations = ptr.To(true)
		s.Spec.Devices[0].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {
			Value: resource.MustParse("80Gi"), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("10Gi"))},
		}}
	}
	memory := func(r *resourceapi.ExactDeviceRequest) {
		r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("30Gi")}}
	}
	withoutModel := func(s *resourceapi.ResourceSlice) { s.Spec.Devices[0].Attributes = nil }

	for name, tc := range map[string]struct {
		reason      string
		slice       *resourceapi.ResourceSlice
		template    *resourceapi.ResourceClaimTemplate
		claims      []*resourceapi.ResourceClaim
		total, free int64
		fault       string
	}{
		"Selector":     {reason: "Only devices of the model serve the claims.", slice: slice("a", 6, models("b", "a", "b", "b", "a", "b")), template: claimed("t", exactly(2, "b")), total: 2, free: 2},
		"SelectsNone":  {reason: "No device is of the model.", slice: slice("a", 8), template: claimed("t", exactly(1, "b"))},
		"Taken":        {reason: "One of three is left.", slice: slice("a", 3, models("b", "b", "b")), template: claimed("t", exactly(2, "b")), claims: []*resourceapi.ResourceClaim{held("p", "a", "d0", "d2")}, total: 1},
		"OtherIsTaken": {reason: "What is taken does not serve the claims anyway.", slice: slice("a", 3, models("b", "b", "a")), template: claimed("t", exactly(2, "b")), claims: []*resourceapi.ResourceClaim{held("p", "a", "d2")}, total: 1, free: 1},
		"TwoRequests":  {reason: "Equal requests share the devices.", slice: slice("a", 3, models("b", "b", "b")), template: claimed("t", exactly(2, "b"), exactly(2, "b"))},
		"Constraint":   {reason: "There are three of one model and one of another: no second pair.", slice: slice("a", 4, models("a", "a", "b", "a")), template: ofOneModel(exactly(2, "")), total: 1, free: 1},
		"Pairs":        {reason: "Two pairs.", slice: slice("a", 4, models("a", "b", "b", "a")), template: ofOneModel(exactly(2, "")), total: 2, free: 2},
		"SplitPairs":   {reason: "One device of each pair is taken.", slice: slice("a", 4, models("a", "b", "b", "a")), template: ofOneModel(exactly(2, "")), claims: []*resourceapi.ResourceClaim{held("p", "a", "d0"), held("q", "a", "d1")}, total: 2},
		"Choice":       {reason: "One of b, then two of a.", slice: slice("a", 4, models("a", "b", "a", "a")), template: choice, total: 2, free: 2},
		"NoChoice":     {reason: "Neither.", slice: slice("a", 2, models("a", "c")), template: choice},
		"All":          {reason: "All devices go to one claim.", slice: slice("a", 4), template: claimed("t", exactly(0, "", all)), total: 1, free: 1},
		"NotAll":       {reason: "One of them is taken.", slice: slice("a", 4), template: claimed("t", exactly(0, "", all)), claims: []*resourceapi.ResourceClaim{held("p", "a", "d0")}, total: 1},
		"Tolerant":     {reason: "The claim tolerates the taint.", slice: slice("a", 2, tainted(0, "NoSchedule")), template: claimed("t", exactly(1, "", tolerant)), total: 2, free: 2},
		"Admin":        {reason: "Monitoring takes nothing away.", slice: slice("a", 1), template: claimed("t", exactly(1, "", admin)), claims: []*resourceapi.ResourceClaim{held("p", "a", "d0")}, total: 1024, free: 1024},
		"Part":         {reason: "Two shares of 30Gi fit into 80Gi.", slice: slice("a", 1, shared), template: claimed("t", exactly(1, "", memory)), total: 2, free: 2},
		"NoClass":      {reason: "The class of a request is missing.", slice: slice("a", 4), template: claimed("t", exactly(1, ""), exactly(1, "", other))},
		"TooMany":      {reason: "A claim has at most 32 devices.", slice: slice("a", 40), template: claimed("t", exactly(33, ""))},
		"Unknown": {
			reason: "The scheduler stops at a selector that fails, and takes what comes before it.", slice: slice("a", 2, withoutModel),
			template: claimed("t", exactly(1, "a")), total: 1024, free: 1024, fault: "no such key: model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := devices.NewCounter()
			c.SetImplicit(true)
			c.SetSlice(tc.slice)
			c.SetClass(class("gpu", true))
			for _, held := range tc.claims {
				c.SetClaim(held)
			}
			c.SetTemplate(tc.template)
			n, kind := c.Count(t.Context())["a"], devices.NameOfClaim(&tc.template.Spec.Spec)
			total, counted := n.Total[kind]
			check.Equal(t, true, counted, "%s is counted", kind)
			check.Equal(t, [2]int64{tc.total, tc.free}, [2]int64{total, total - n.Used[kind]}, "%s", tc.reason)
			check.Equal(t, tc.fault != "", len(c.Faults()) == 1 && strings.Contains(c.Faults()[0], tc.fault), "faults: %v", c.Faults())
		})
	}
}

// TestKindsCome checks that templates of equal claims are one kind, which goes with the last of them.
func TestKindsCome(t *testing.T) {
	c := devices.NewCounter()
	c.SetImplicit(true)
	c.SetClass(class("gpu", true))
	c.SetSlice(slice("a", 2, models("a", "b")))
	c.SetTemplate(claimed("plain", exactly(2, "")))
	c.Count(t.Context())
	check.Equal(t, 0, len(c.Kinds()), "kinds that any devices of the class serve")

	c.SetTemplate(claimed("one", exactly(1, "b")))
	c.SetTemplate(claimed("two", exactly(1, "b")))
	check.Equal(t, 1, len(c.Kinds()), "kinds")
	kind := c.Kinds()[0]
	c.SetClaim(held("p", "a", "d1"))
	n := c.Count(t.Context())["a"]
	check.Equal(t, [2]int64{1, 1}, [2]int64{n.Total[kind], n.Used[kind]}, "total and used")
	check.Equal(t, int64(1), n.Pods[types.NamespacedName{Namespace: "team", Name: "p"}][kind], "it becomes free with the pod")

	c.SetSlice(slice("a", 3, models("a", "b", "b")))
	n = c.Count(t.Context())["a"]
	check.Equal(t, [2]int64{2, 1}, [2]int64{n.Total[kind], n.Used[kind]}, "total and used with one more device")

	c.DeleteTemplate(types.NamespacedName{Namespace: "team", Name: "one"})
	check.Equal(t, 1, len(c.Kinds()), "kinds while there is a template")
	c.DeleteTemplate(types.NamespacedName{Namespace: "team", Name: "two"})
	_, counted := c.Count(t.Context())["a"].Total[kind]
	check.Equal(t, false, counted || len(c.Kinds()) > 0, "the kind is counted without a template")
}

// slowClaim is a template with ten requests. No two are equal, and a node has nine devices for them. The allocator tries
// all orders before it gives up.
func slowClaim() *resourceapi.ResourceClaimTemplate {
	var requests []resourceapi.DeviceRequest
	for i := range 10 {
		request := exactly(1, "a")
		request.Name = fmt.Sprint("r", i)
		request.Exactly.Selectors[0].CEL.Expression += fmt.Sprintf(" || %d < 0", i) // So that no two are equal.
		requests = append(requests, request)
	}
	return claimed("slow", requests...)
}

// TestSlowKind checks that a search that takes too many steps ends with an answer that keeps nobody off, and that
// nobody searches for ever again.
func TestSlowKind(t *testing.T) {
	c := devices.NewCounter()
	c.SetImplicit(true)
	c.SetClass(class("gpu", true))
	c.SetTemplate(slowClaim())
	kind := c.Kinds()[0]
	for i := range 20 {
		c.SetSlice(slice(fmt.Sprint("n", i), 9))
	}
	for name, n := range c.Count(t.Context()) {
		check.Equal(t, [2]int64{1024, 0}, [2]int64{n.Total[kind], n.Used[kind]}, "claims on node %s", name)
	}
	const said = "claims are not counted on 20 of the nodes: it takes too long to know: request r0 (1 of class gpu with device.attributes"
	if faults := c.Faults(); len(faults) != 1 || !strings.HasPrefix(faults[0], said) {
		t.Errorf("faults: %q, want one that begins with %q", faults, said)
	}

	// What is decided by the number of devices needs no search.
	c.DeleteTemplate(types.NamespacedName{Namespace: "team", Name: "slow"})
	requests := slowClaim().Spec.Spec.Devices.Requests
	for i := range requests {
		requests[i].Exactly.Selectors = ofModel("a")
	}
	c.SetTemplate(claimed("quick", requests...))
	kind = c.Kinds()[0]
	check.Equal(t, int64(0), c.Count(t.Context())["n0"].Total[kind], "claims of ten equal requests on nine devices")
	check.Equal(t, 0, len(c.Faults()), "faults")
}

// TestTooManyKinds: whoever makes templates chooses how many kinds there are.
func TestTooManyKinds(t *testing.T) {
	c := devices.NewCounter()
	c.SetImplicit(true)
	c.SetClass(class("gpu", true))
	c.SetSlice(slice("a", 2))
	for i := range 40 {
		c.SetTemplate(claimed(fmt.Sprint("t", i), exactly(1, fmt.Sprint("m", i))))
	}
	n, counted := c.Count(t.Context())["a"], 0
	for _, kind := range c.Kinds() {
		if _, has := n.Total[kind]; has {
			counted++
		}
	}
	check.Equal(t, 32, counted, "kinds that are counted")
	check.Equal(t, "[8 kinds of claims are not counted: the ResourceClaimTemplates have more than 32]", fmt.Sprint(c.Faults()), "faults")
}

// TestKindsInAnyOrder: schedulers before 1.36 take pools in any order.
func TestKindsInAnyOrder(t *testing.T) {
	second := func(s *resourceapi.ResourceSlice) { s.Name, s.Spec.Pool.Name = "second", "second" }
	template := claimed("t", exactly(2, ""))
	template.Spec.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(driver + "/model"))}}
	c := devices.NewCounter()
	c.SetClass(class("gpu", true))
	c.SetSlice(slice("a", 2, models("a", "b")))
	c.SetSlice(slice("a", 2, models("b", "a"), second))
	c.SetTemplate(template)
	kind := c.Kinds()[0]
	c.SetClaim(held("p", "a", "d0"))
	n := c.Count(t.Context())["a"]
	check.Equal(t, [2]int64{2, 1}, [2]int64{n.Total[kind], n.Used[kind]}, "the most that may fit")
	check.Equal(t, true, len(c.Faults()) == 1 && strings.Contains(c.Faults()[0], "the most that may fit"), "faults: %v", c.Faults())
	c.SetClaim(held("q", "a", "d1"))
	other := held("r", "second", "d0")
	c.SetClaim(other)
	n = c.Count(t.Context())["a"]
	check.Equal(t, [2]int64{2, 2}, [2]int64{n.Total[kind], n.Used[kind]}, "no pair is left, in no order")
}

// TestManySelectors: the allocator looks at all selectors of a claim before it asks for the time, so a kind with many of
// them is not counted at all.
func TestManySelectors(t *testing.T) {
	c := devices.NewCounter()
	c.SetImplicit(true)
	c.SetClass(class("gpu", true))
	c.SetSlice(slice("a", 2))
	request := exactly(1, "a")
	for range 16 {
		request.Exactly.Selectors = append(request.Exactly.Selectors, ofModel("a")...)
	}
	c.SetTemplate(claimed("many", request))
	kind := c.Kinds()[0]
	check.Equal(t, int64(1024), c.Count(t.Context())["a"].Total[kind], "claims")
	if faults := c.Faults(); len(faults) != 1 || !strings.Contains(faults[0], "on 1 of the nodes: it takes too long to know") {
		t.Errorf("faults: %q", faults)
	}
}

// TestCountIsInterrupted: what there was no time for is counted next time. It is not kept as if the node had none.
func TestCountIsInterrupted(t *testing.T) {
	c := devices.NewCounter()
	c.SetImplicit(true)
	c.SetClass(class("gpu", true))
	c.SetSlice(slice("a", 2))
	c.SetTemplate(claimed("one", exactly(1, "a")))
	kind, over := c.Kinds()[0], func() context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx
	}()
	n := c.Count(over)["a"]
	check.Equal(t, [2]int64{0, 1024}, [2]int64{n.Total[devices.NameOfClass("gpu")], n.Total[kind]}, "devices and claims without time")
	check.Equal(t, 2, len(c.Faults()), "faults")
	n = c.Count(t.Context())["a"]
	check.Equal(t, int64(2), n.Total[devices.NameOfClass("gpu")], "devices with time")
	check.Equal(t, true, n.Total[kind] < 1024, "claims with time: %d", n.Total[kind])
	check.Equal(t, 0, len(c.Faults()), "faults: %v", c.Faults())
	check.Equal(t, 0, len(c.Count(t.Context())), "nodes that are counted again")
}

// TestSharesOfPods: two pods keep a claim from fitting, and it fits when one of them leaves, or only when both do. The
// shares add up to what both have.
func TestSharesOfPods(t *testing.T) {
	for needs, want := range map[int64]int64{1: 4, 2: 2, 4: 1} {
		c := devices.NewCounter()
		c.SetImplicit(true)
		c.SetClass(class("gpu", true))
		c.SetSlice(slice("a", 4, models("a", "a", "a", "a")))
		c.SetTemplate(claimed("all", exactly(needs, "a")))
		kind := c.Kinds()[0]
		c.SetClaim(held("p", "a", "d0", "d1"))
		c.SetClaim(held("q", "a", "d2", "d3"))
		n := c.Count(t.Context())["a"]
		shares := int64(0)
		for _, of := range n.Pods {
			shares += of[kind]
		}
		check.Equal(t, [3]int64{want, want, want}, [3]int64{n.Total[kind], n.Used[kind], shares}, "total, used, and shares of claims of %d", needs)
	}
}

// TestKindsBesideSharedPools: a claim may have a device that several nodes reach, so nobody is kept off while there is one.
func TestKindsBesideSharedPools(t *testing.T) {
	c := devices.NewCounter()
	c.SetImplicit(true)
	c.SetClass(class("gpu", true))
	c.SetNode("a", nil)
	c.SetNode("b", nil)
	c.SetSlice(slice("a", 2))
	c.SetTemplate(claimed("none", exactly(1, "of nobody")))
	kind := c.Kinds()[0]
	total, has := c.Count(t.Context())["a"].Total[kind]
	check.Equal(t, true, has && total == 0, "the claim fits nowhere")
	c.SetSlice(slice("a", 1, func(s *resourceapi.ResourceSlice) {
		s.Name, s.Spec.Pool.Name, s.Spec.NodeName, s.Spec.AllNodes = "fabric", "fabric", nil, ptr.To(true)
	}))
	_, has = c.Count(t.Context())["a"].Total[kind]
	check.Equal(t, false, has || len(c.Kinds()) > 0, "the claim is counted")
	check.Equal(t, 2, len(c.Faults()), "faults: %v", c.Faults())
	c.DeleteSlice("fabric")
	_, has = c.Count(t.Context())["a"].Total[kind]
	check.Equal(t, true, has, "the claim is counted without the pool")
}
