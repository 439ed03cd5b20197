// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/capacity"
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
}

// TestMayServeTaintRules: an API server is asked for rules in v1 only if it can have them.
func TestMayServeTaintRules(t *testing.T) {
	for version, want := range map[string]bool{"v1.36.3": false, "v1.37.0": true, "v1.37.2-gke.100": true, "v2.0.0": true, "": false} {
		check.Equal(t, want, capacity.MayServeTaintRules(version, "v1"), "Kubernetes %q", version)
	}
	check.Equal(t, true, capacity.MayServeTaintRules("v1.36.3", "v1beta2"), "a version that has to be enabled")
}
