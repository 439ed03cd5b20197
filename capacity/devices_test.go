// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/capacity/devices"
	"github.com/trainyard/trainyard/test/check"
)

const gpu = corev1.ResourceName("example.com/gpu")

// TestDevicesOfNodes checks what nodes have whose GPUs a driver of Dynamic Resource Allocation or a device plugin
// serves.
func TestDevicesOfNodes(t *testing.T) {
	tally := capacity.NewTally()
	add := func(objects ...any) {
		for _, object := range objects {
			switch object.(type) {
			case *corev1.Node:
				tally.NodeHandler().OnAdd(object, false)
			case *corev1.Pod:
				tally.PodHandler().OnAdd(object, false)
			default:
				tally.DeviceHandler().OnAdd(object, false)
			}
		}
	}
	node := func(gpus string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
		}}
		if gpus != "" {
			n.Status.Allocatable[gpu] = resource.MustParse(gpus)
		}
		return n
	}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: ptr.To("a"),
			Pool:    resourceapi.ResourcePool{Name: "a", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "d0"}, {Name: "d1"}, {Name: "d2"}},
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", Labels: map[string]string{
			jobsetv1alpha2.JobSetNameKey: "job", jobsetv1alpha2.ReplicatedJobNameKey: "node",
		}},
		Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{gpu: resource.MustParse("2")},
		}}}},
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "p-1", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p"}},
	}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{
			{Driver: "gpu.example.com", Pool: "a", Device: "d0"}, {Driver: "gpu.example.com", Pool: "a", Device: "d2"},
		},
	}}
	expect := func(allocatable, used, ofGang int64, what string) {
		t.Helper()
		state := tally.Snapshot().Nodes[0]
		gang := state.Gangs[types.NamespacedName{Namespace: "team", Name: "job"}]
		check.Equal(t, [3]int64{allocatable, used, ofGang}, [3]int64{state.Allocatable[gpu], state.Used[gpu], gang[gpu]}, "%s", what)
	}

	add(slice, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To(string(gpu))},
	}, node(""))
	expect(3, 0, 0, "devices")
	add(pod)
	expect(3, 0, 0, "a pod takes devices by a claim only")
	before := tally.Snapshot().Generation
	add(claim)
	expect(3, 2, 2, "a claim of a pod")
	check.Equal(t, before+1, tally.Snapshot().Generation, "generation")
	add(claim)
	check.Equal(t, before+1, tally.Snapshot().Generation, "generation after an event that changes nothing")
	tally.NodeHandler().OnUpdate(nil, node("4"))
	expect(4, 2, 2, "where a device plugin has the resource, its numbers count, and the pods' requests")
	tally.NodeHandler().OnUpdate(nil, node("0"))
	expect(3, 2, 2, "a device plugin without devices")
	tally.DeviceHandler().OnDelete(claim)
	expect(3, 0, 0, "the claim is gone before the pod is")
	rule := capacity.NewTaintRule("v1")
	rule.SetName("sick")
	rule.Object["spec"] = map[string]any{
		"deviceSelector": map[string]any{"device": "d1"}, "taint": map[string]any{"key": "sick", "effect": "NoSchedule"},
	}
	stripped, err := capacity.StripDevices(rule)
	check.Must(t, err)
	add(stripped)
	expect(2, 0, 0, "a rule taints a device")
	tally.DeviceHandler().OnDelete(toolscache.DeletedFinalStateUnknown{Key: "sick", Obj: stripped})
	expect(3, 0, 0, "the rule is gone")
	tally.DeviceHandler().OnDelete(slice)
	expect(0, 2, 2, "a driver that is gone")
	anywhere := slice.DeepCopy()
	anywhere.Spec.NodeName, anywhere.Spec.AllNodes = nil, ptr.To(true)
	add(anywhere)
	expect(3, 0, 0, "devices that all nodes reach, where there is one node")
	other := node("")
	other.Name = "b"
	add(other)
	expect(0, 2, 2, "devices that two nodes reach")
	tally.NodeHandler().OnDelete(other)
	expect(3, 0, 0, "one node is left")
}

// TestMayServeTaintRules: an API server is asked for rules in v1 only if it can have them.
func TestMayServeTaintRules(t *testing.T) {
	for version, want := range map[string]bool{"v1.36.3": false, "v1.37.0": true, "v1.37.2-gke.100": true, "v2.0.0": true, "": false} {
		check.Equal(t, want, capacity.MayServeTaintRules(version, "v1"), "Kubernetes %q", version)
	}
	check.Equal(t, true, capacity.MayServeTaintRules("v1.36.3", "v1beta2"), "a version that has to be enabled")
}

// TestClaimsOfNodes checks that each node says how many claims of a template fit there, also in a report, and that a node
// without devices says that none does.
func TestClaimsOfNodes(t *testing.T) {
	tally := capacity.NewTally()
	tally.SetKubernetes("v1.36.3")
	for _, name := range []string{"a", "b"} {
		tally.NodeHandler().OnAdd(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node": name}},
			Status: corev1.NodeStatus{
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
			},
		}, false)
	}
	model := func(name, model string) resourceapi.Device {
		return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}}}
	}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gpus"}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["gpu.example.com"].model == "a"`}}},
	}}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "p-1", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p"}},
	}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "gpu.example.com", Pool: "a", Device: "d0"}},
	}}
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: ptr.To("a"),
		Pool:    resourceapi.ResourcePool{Name: "a", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourceapi.Device{model("d0", "a"), model("d1", "b"), model("d2", "a")},
	}}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	tally.PodHandler().OnAdd(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: "job"}},
		Spec:       corev1.PodSpec{NodeName: "a"},
	}, false)
	for _, object := range []any{slice, class, claim, template} {
		stripped, err := capacity.StripDevices(object)
		check.Must(t, err)
		tally.DeviceHandler().OnAdd(stripped, false)
	}
	name := devices.NameOfClaim(&template.Spec.Spec)
	expect := func(what string, snapshot *capacity.Snapshot, want string) {
		t.Helper()
		var got []any
		for _, n := range snapshot.Nodes {
			total, has := n.Allocatable[name]
			got = append(got, n.Labels["node"], has, total, n.Used[name], n.Gangs[types.NamespacedName{Namespace: "team", Name: "job"}][name])
		}
		check.Equal(t, want, strings.TrimSpace(fmt.Sprintln(got...)), "%s", what)
	}
	reported := func() *capacity.Snapshot {
		report, err := capacity.NewReport(tally.Snapshot(), capacity.ReportLimit)
		check.Must(t, err)
		report.Name = v1alpha1.CapacityReportName
		r := capacity.NewReported(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), func() {})
		r.Handler().OnAdd(report, false)
		return r.Snapshot()
	}
	const counted = "a true 2 1 1 b true 0 0 0"
	expect("the tally", tally.Snapshot(), counted)
	expect("the report", reported(), counted)
	limit := size(t, tally.Snapshot(), capacity.ReportLimit)
	small, err := capacity.NewReport(tally.Snapshot(), limit-1)
	check.Must(t, err)
	check.Equal(t, "[kinds of claims are not counted: the CapacityReport has no room for them] []",
		fmt.Sprint(small.Uncounted, small.Abridged), "what a report that is too large leaves out first")
	check.Equal(t, false, slices.ContainsFunc(small.Resources, v1alpha1.IsDeviceClaim), "it has kinds of claims: %v", small.Resources)
	tally.DeviceHandler().OnDelete(template)
	const gone = "a false 0 0 0 b false 0 0 0"
	expect("the tally without the template", tally.Snapshot(), gone)
	expect("the report without the template", reported(), gone)
}

// size returns how many bytes a report has.
func size(t *testing.T, snapshot *capacity.Snapshot, limit int) int {
	t.Helper()
	report, err := capacity.NewReport(snapshot, limit)
	check.Must(t, err)
	data, err := json.Marshal(report)
	check.Must(t, err)
	return len(data)
}
