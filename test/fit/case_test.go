// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/capacity"
)

// labelCase is on the nodes of a case, and all its pods select it. So cases do not meet.
const labelCase = "fit.trainyard.dev/case"

// labelHost has another value on each node.
const labelHost = "fit.trainyard.dev/host"

// scene is what a case has before its pods.
type scene struct {
	name    string // Of the case, its namespace, its class and its driver.
	nodes   []*corev1.Node
	objects []client.Object
	// gangs come one after another, and stay.
	gangs []gang
}

// gang is a number of equal pods.
type gang struct {
	count int
	pod   corev1.PodSpec
}

func (s *scene) gpu() corev1.ResourceName { return corev1.ResourceName(s.name + ".example.com/gpu") }

// draw makes a random case.
func draw(r *rand.Rand, name string) *scene {
	s := &scene{name: name}
	one := func(of int) bool { return r.IntN(of) == 0 }
	if ruleVersion != "" && one(3) { // First, so that the scheduler knows the rule when pods come.
		s.objects = append(s.objects, s.drawRule(r))
	}
	isListed := one(3) // GPUs of a device plugin.
	for i := range 1 + r.IntN(4) {
		s.nodes = append(s.nodes, s.node(r, i, isListed || one(6)))
	}
	if !isListed || one(2) {
		for _, n := range s.nodes {
			s.publish(r, n.Name)
		}
	}
	class := s.class()
	if one(3) {
		class.Spec.Selectors = append(class.Spec.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].model == \"a\"", name+".example.com"),
		}})
	}
	s.objects = append(s.objects, class)
	if one(3) {
		s.objects = append(s.objects, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "defaults"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
			}}},
		})
	}
	hasClass := one(3)
	if hasClass {
		s.objects = append(s.objects, &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "sandbox",
			Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}}},
		})
	}
	for i := range 1 + r.IntN(2) {
		g := s.gang(r, i)
		if hasClass && one(2) {
			g.pod.RuntimeClassName = ptr.To(name)
		}
		s.gangs = append(s.gangs, g)
	}
	return s
}

// class is the class of all devices of the case.
func (s *scene) class() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: resourceapi.DeviceClassSpec{
		ExtendedResourceName: ptr.To(string(s.gpu())),
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q", s.name+".example.com"),
		}}},
	}}
}

// drawRule makes a DeviceTaintRule for some devices of the case.
func (s *scene) drawRule(r *rand.Rand) client.Object {
	selector := map[string]any{"driver": s.name + ".example.com"}
	if r.IntN(2) == 0 {
		selector["pool"] = fmt.Sprint(s.name, "-", r.IntN(2))
	}
	if r.IntN(2) == 0 {
		selector["device"] = fmt.Sprint("d", r.IntN(3))
	}
	return s.rule(selector, []string{"NoSchedule", "NoExecute", "None"}[r.IntN(3)])
}

// rule makes a DeviceTaintRule. A nil selector is none.
func (s *scene) rule(selector map[string]any, effect string) client.Object {
	rule := capacity.NewTaintRule(ruleVersion)
	rule.SetName(s.name)
	spec := map[string]any{"taint": map[string]any{"key": "example.com/sick", "effect": effect}}
	if selector != nil {
		spec["deviceSelector"] = selector
	}
	rule.Object["spec"] = spec
	return rule
}

func (s *scene) node(r *rand.Rand, i int, isListed bool) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(s.name, "-", i), Labels: map[string]string{
			labelCase: s.name, "zone": fmt.Sprint("z", r.IntN(2)), labelHost: fmt.Sprint(s.name, "-", i),
		}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewQuantity(int64(4+r.IntN(13)), resource.DecimalSI),
				"memory":           resource.MustParse("64Gi"), "pods": *resource.NewQuantity(int64(2+r.IntN(9)), resource.DecimalSI),
			},
		},
	}
	if isListed {
		n.Status.Allocatable[s.gpu()] = *resource.NewQuantity(int64(r.IntN(5)), resource.DecimalSI)
	}
	switch r.IntN(5) {
	case 0:
		n.Spec.Taints = []corev1.Taint{{Key: "sandbox", Effect: corev1.TaintEffectNoSchedule}}
	case 1:
		n.Spec.Taints = []corev1.Taint{{Key: string(s.gpu()), Value: "present", Effect: corev1.TaintEffectNoSchedule}}
	}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

// publish makes the slices of a node: whole devices, some of them sick or of another model, halves of one, or a pool
// that is not complete.
func (s *scene) publish(r *rand.Rand, node string) {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: s.name + ".example.com", NodeName: &node,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range r.IntN(5) {
		device := resourceapi.Device{
			Name:       fmt.Sprint("d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: ptr.To([]string{"a", "a", "b"}[r.IntN(3)])}},
		}
		switch r.IntN(6) {
		case 0:
			device.Taints = []resourceapi.DeviceTaint{{Key: "sick", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		case 1:
			device.Taints = []resourceapi.DeviceTaint{{Key: "watched", Effect: resourceapi.DeviceTaintEffectNone}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	switch r.IntN(6) { // Other ways to say which node it is.
	case 0:
		slice.Spec.NodeName, slice.Spec.PerDeviceNodeSelection = nil, new(true)
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].NodeName = &node
		}
	case 1:
		slice.Spec.NodeName, slice.Spec.NodeSelector = nil, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: labelHost, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}
	}
	switch r.IntN(8) {
	case 0:
		slice.Spec.Pool.ResourceSliceCount = 2
	case 1:
		s.objects = append(s.objects, halve(slice))
	}
	s.objects = append(s.objects, slice)
}

// halve makes all devices of a slice halves of one, and returns the slice with its memory.
func halve(slice *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	memory := func(amount string) map[string]resourceapi.Counter {
		return map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(amount)}}
	}
	slice.Spec.Pool.ResourceSliceCount = 2
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "card", Counters: memory("40Gi")}}
	}
	whole := slice.DeepCopy()
	whole.Name += "-counters"
	whole.Spec.Devices = nil
	whole.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "card", Counters: memory("80Gi")}}
	return whole
}

func (s *scene) gang(r *rand.Rand, i int) gang {
	requests := corev1.ResourceList{}
	if r.IntN(4) > 0 {
		requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(1+r.IntN(6)), resource.DecimalSI)
	}
	limits := corev1.ResourceList{}
	container := corev1.Container{Name: "main", Image: "registry.example.com/main"}
	pod := corev1.PodSpec{NodeSelector: map[string]string{labelCase: s.name}, TerminationGracePeriodSeconds: ptr.To(int64(0))}
	gpus := int64(r.IntN(4))
	switch {
	case gpus == 0:
	case r.IntN(2) == 0:
		template := fmt.Sprint("gpus-", i)
		claimed := s.claim(r, gpus)
		s.objects = append(s.objects, &resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: template},
			Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: claimed}},
		})
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: &template}}
	default:
		limits[s.gpu()] = *resource.NewQuantity(gpus, resource.DecimalSI)
		requests[s.gpu()] = limits[s.gpu()]
	}
	if r.IntN(3) == 0 {
		pod.NodeSelector["zone"] = "z0"
	}
	if r.IntN(5) == 0 { // The larger of the two counts.
		pod.InitContainers = []corev1.Container{{
			Name: "first", Image: "registry.example.com/first", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(1+r.IntN(8)), resource.DecimalSI)},
			},
		}}
	}
	if r.IntN(3) == 0 {
		port := corev1.ContainerPort{ContainerPort: int32(29500 + r.IntN(2)), Protocol: []corev1.Protocol{"TCP", "UDP"}[r.IntN(2)]}
		if pod.HostNetwork = r.IntN(2) == 0; !pod.HostNetwork {
			port.HostPort = port.ContainerPort
			port.HostIP = []string{"", "0.0.0.0", "127.0.0.1", "127.0.0.2", "::"}[r.IntN(5)]
		}
		container.Ports = []corev1.ContainerPort{port}
	}
	container.Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	pod.Containers = []corev1.Container{container}
	return gang{count: 1 + r.IntN(4), pod: pod}
}

// claim draws a claim: for any GPUs, for GPUs of a model, for GPUs that are alike, for the first of two choices, for all,
// or for GPUs of which some may be sick.
func (s *scene) claim(r *rand.Rand, gpus int64) resourceapi.DeviceClaim {
	of := func(model string) []resourceapi.DeviceSelector {
		return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].model == %q", s.name+".example.com", model),
		}}}
	}
	exact := &resourceapi.ExactDeviceRequest{
		DeviceClassName: s.name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: gpus,
	}
	claim := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpus", Exactly: exact}}}
	switch r.IntN(7) {
	case 0, 1:
		exact.Selectors = of([]string{"a", "b", "c"}[r.IntN(3)])
	case 2:
		claim.Constraints = []resourceapi.DeviceConstraint{{
			MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(s.name + ".example.com/model")),
		}}
	case 3:
		claim.Requests[0] = resourceapi.DeviceRequest{Name: "gpus", FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "good", DeviceClassName: s.name, AllocationMode: exact.AllocationMode, Count: 1, Selectors: of("b")},
			{Name: "many", DeviceClassName: s.name, AllocationMode: exact.AllocationMode, Count: gpus, Selectors: of("a")},
		}}
	case 4:
		exact.AllocationMode, exact.Count = resourceapi.DeviceAllocationModeAll, 0
	case 5:
		exact.Tolerations = []resourceapi.DeviceToleration{{Key: "sick", Operator: resourceapi.DeviceTolerationOpExists}}
	}
	return claim
}
