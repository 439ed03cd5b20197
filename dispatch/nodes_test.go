// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestNewNodesGroups(t *testing.T) {
	since := metav1.Unix(1, 0)
	cases := map[string]struct {
		reason string
		nodes  []NodeGroup
		want   []NodeGroup
	}{
		"Alike": {
			reason: "host name, order of taints, their times and preferences make no difference",
			nodes: []NodeGroup{
				{
					Labels: map[string]string{"gpu": "a100", corev1.LabelHostname: "1"}, Free: Resources{gpu: 8}, Count: 1,
					Taints: []corev1.Taint{taint("a", "", corev1.TaintEffectNoSchedule), taint("b", "", corev1.TaintEffectNoExecute)},
				},
				{
					Labels: map[string]string{"gpu": "a100", corev1.LabelHostname: "2"}, Free: Resources{gpu: 8}, Count: 2,
					Taints: []corev1.Taint{
						{Key: "b", Effect: corev1.TaintEffectNoExecute, TimeAdded: &since}, taint("a", "", corev1.TaintEffectNoSchedule),
						taint("c", "", corev1.TaintEffectPreferNoSchedule),
					},
				},
			},
			want: []NodeGroup{{
				Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 8}, Count: 3,
				Taints: []corev1.Taint{taint("a", "", corev1.TaintEffectNoSchedule), taint("b", "", corev1.TaintEffectNoExecute)},
			}},
		},
		"Different": {
			reason: "labels and free amounts make a difference; a node without a resource is not one with none of it free",
			nodes: []NodeGroup{
				{Labels: map[string]string{"gpu": "h100"}, Free: Resources{gpu: 8}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 8}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: -1}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Count: 1},
			},
			want: []NodeGroup{
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 0}, Count: 1},
				{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: 8}, Count: 1},
				{Labels: map[string]string{"gpu": "h100"}, Free: Resources{gpu: 8}, Count: 1},
			},
		},
		"Empty": {
			reason: "a group without nodes is none",
			nodes:  []NodeGroup{{Free: Resources{gpu: 8}}},
			want:   []NodeGroup{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, tc.want, NewNodes(tc.nodes).Groups(), fmt.Sprintf("%s\nGroups", tc.reason))
		})
	}
}

func TestNoNodes(t *testing.T) {
	for name, n := range map[string]*Nodes{"Nil": nil, "Zero": {}, "None": NewNodes(nil)} {
		podSets := []v1alpha1.PodSet{podSet(1, 1), podSet(1, 2, named("other", ""))}
		if n.Fit(podSets) == nil || n.Count() != 0 || n.Free(gpu) != 0 || len(n.Groups()) != 0 || n.Reserve(podSets).Count() != 0 {
			t.Errorf("%s: no nodes are not empty", name)
		}
	}
}

func TestReserve(t *testing.T) {
	group := func(count int, gpus int64) NodeGroup { return NodeGroup{Free: Resources{gpu: gpus}, Count: count} }
	cases := map[string]struct {
		reason  string
		podSets []v1alpha1.PodSet
		nodes   []NodeGroup
		want    []NodeGroup
	}{
		"FragmentsFirst": {
			reason:  "whole nodes stay free for gangs",
			podSets: []v1alpha1.PodSet{podSet(2, 2)},
			nodes:   []NodeGroup{group(1, 8), group(1, 3), group(1, 2)},
			want:    []NodeGroup{group(1, 0), group(1, 1), group(1, 8)},
		},
		"FillsNodes": {
			reason:  "pods stay together, the last few on one node more",
			podSets: []v1alpha1.PodSet{podSet(7, 2)},
			nodes:   []NodeGroup{group(4, 4)},
			want:    []NodeGroup{group(3, 0), group(1, 2)},
		},
		"AwayFromGPUs": {
			reason:  "pods without GPUs leave nodes with GPUs alone",
			podSets: []v1alpha1.PodSet{podSet(1, 0, requests(corev1.ResourceList{corev1.ResourceCPU: quantity("1")}))},
			nodes: []NodeGroup{
				{Free: Resources{gpu: 8, corev1.ResourceCPU: 2000}, Count: 1},
				{Free: Resources{corev1.ResourceCPU: 3000}, Count: 1},
			},
			want: []NodeGroup{
				{Free: Resources{corev1.ResourceCPU: 2000}, Count: 1},
				{Free: Resources{gpu: 8, corev1.ResourceCPU: 2000}, Count: 1},
			},
		},
		"AsFarAsItFits": {
			reason:  "what has no place is taken off nothing",
			podSets: []v1alpha1.PodSet{podSet(3, 8)},
			nodes:   []NodeGroup{group(2, 8), group(1, 7)},
			want:    []NodeGroup{group(2, 0), group(1, 7)},
		},
		"LargerPhase": {
			reason: "initializers and trainers do not add up",
			podSets: []v1alpha1.PodSet{
				podSet(1, 4, named("model", v1alpha1.RoleModelInitializer)), podSet(2, 3),
			},
			nodes: []NodeGroup{group(1, 8)},
			want:  []NodeGroup{group(1, 2)},
		},
		"PodSlots": {
			reason:  "each pod takes a slot",
			podSets: []v1alpha1.PodSet{podSet(3, 0)},
			nodes:   []NodeGroup{{Free: Resources{corev1.ResourcePods: 110}, Count: 1}},
			want:    []NodeGroup{{Free: Resources{corev1.ResourcePods: 107}, Count: 1}},
		},
		"NoPods": {
			reason: "nothing is taken off",
			nodes:  []NodeGroup{group(1, 8)},
			want:   []NodeGroup{group(1, 8)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, tc.want, NewNodes(tc.nodes).Reserve(tc.podSets).Groups(), fmt.Sprintf("%s\nReserve", tc.reason))
		})
	}
}

func TestFromList(t *testing.T) {
	got := FromList(corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1500u"),
		corev1.ResourceMemory: resource.MustParse("1500m"),
		gpu:                   resource.MustParse("8"),
	})
	want := Resources{corev1.ResourceCPU: 2, corev1.ResourceMemory: 2, gpu: 8}
	check.Diff(t, want, got, "fractions are rounded up")
}

// TestAmountsSaturate: an amount that is too large to count never counts as a small one. Else a job that asks for more
// than there is would fit everywhere.
func TestAmountsSaturate(t *testing.T) {
	huge := resource.MustParse("9000000000000000000")
	sum := huge.DeepCopy()
	sum.Add(huge)
	for name, test := range map[string]struct {
		name     corev1.ResourceName
		quantity resource.Quantity
		want     int64
	}{
		"CPU":      {name: corev1.ResourceCPU, quantity: huge, want: math.MaxInt64},
		"Sum":      {name: corev1.ResourceMemory, quantity: sum, want: math.MaxInt64},
		"Fraction": {name: corev1.ResourceCPU, quantity: resource.MustParse("9223372036854775.808"), want: math.MaxInt64},
		"Largest":  {name: corev1.ResourceCPU, quantity: resource.MustParse("9223372036854775806m"), want: math.MaxInt64 - 1},
		"Negative": {name: corev1.ResourceCPU, quantity: resource.MustParse("-9000000000000000000"), want: -math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, FromList(corev1.ResourceList{test.name: test.quantity})[test.name],
				"%s is read as", &test.quantity)
		})
	}
	r := Resources{gpu: math.MaxInt64 - 1}
	r.Add(Resources{gpu: 2})
	check.Equal(t, math.MaxInt64, r[gpu], "the sum")
	r = Resources{gpu: -2}
	r.Sub(Resources{gpu: math.MaxInt64})
	check.Equal(t, -math.MaxInt64, r[gpu], "the difference")
	set := podSet(1, 1, requests(corev1.ResourceList{corev1.ResourceCPU: huge}))
	if NewNodes([]NodeGroup{{Free: Resources{corev1.ResourceCPU: 96000}, Count: 1}}).Fit([]v1alpha1.PodSet{set}) == nil {
		t.Error("a pod of 9e18 cores is said to fit on a node of 96")
	}
}

func TestAddSub(t *testing.T) {
	node := FromList(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), gpu: resource.MustParse("1")})
	pod := Resources{}
	pod.Add(Resources{corev1.ResourceCPU: 500, gpu: 1})
	pod.Add(Resources{corev1.ResourceCPU: 500, gpu: 1, "amd.com/gpu": 1})
	node.Sub(pod)
	check.Diff(t, Resources{corev1.ResourceCPU: 1000, gpu: -1}, node, "a node gets no resource that it did not list")
}

func TestFormat(t *testing.T) {
	cases := map[string]struct {
		name   corev1.ResourceName
		amount int64
	}{
		"500m cpu":               {name: corev1.ResourceCPU, amount: 500},
		"96 cpu":                 {name: corev1.ResourceCPU, amount: 96000},
		"8Gi memory":             {name: corev1.ResourceMemory, amount: 8 << 30},
		"1Gi hugepages-2Mi":      {name: "hugepages-2Mi", amount: 1 << 30},
		"16000 nvidia.com/gpu":   {name: gpu, amount: 16000},
		"10Gi ephemeral-storage": {name: corev1.ResourceEphemeralStorage, amount: 10 << 30},
	}
	for want, tc := range cases {
		check.Equal(t, want, format(tc.name, tc.amount), "format(%q, %d)", tc.name, tc.amount)
	}
}

// unset returns the fields of a struct that have their zero value, without some.
func unset(value any, without ...string) []string {
	var names []string
	for v, i := reflect.ValueOf(value), 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && !slices.Contains(without, name) {
			names = append(names, name)
		}
	}
	return names
}

// TestWorkerOf: what the manager, the webhook and the plugin know of a worker is filled in by one function.
func TestWorkerOf(t *testing.T) {
	cluster := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "east", Labels: map[string]string{"region": "eu"}},
		Spec: v1alpha1.WorkerClusterSpec{
			Drain: true, Kueue: v1alpha1.WorkerKueue{WorkerQueue: "team"},
			Price:      v1alpha1.Prices{gpu: resource.MustParse("2")},
			Expandable: []v1alpha1.ExpandableNodes{{Name: "pool"}},
			Data:       []v1alpha1.WorkerData{{Prefix: "s3://corpora"}},
		},
		Status: v1alpha1.WorkerClusterStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.WorkerClusterAgentReady, Status: metav1.ConditionTrue}},
			Trainer:    &v1alpha1.TrainerAPI{Release: "2.3"},
			Jobs:       3, KubernetesVersion: "v1.36.2", NodeGroups: []v1alpha1.NodeGroup{{Nodes: 1}},
		},
	}
	worker := WorkerOf(cluster, NewNodes(nil), Resources{gpu: 8})
	// A worker with an agent Merges, which is the zero value: TestMergingOf.
	if missing := unset(worker, "NotReady", "Queued", "Revision", "Merging"); len(missing) > 0 {
		t.Errorf("WorkerOf does not fill in %v: fill it in, or name it in this test if each caller counts it for itself", missing)
	}
}

// TestJobOf: what a job's object says is filled in by one function.
func TestJobOf(t *testing.T) {
	object := &metav1.ObjectMeta{
		UID: "uid", Name: "llm", Namespace: "team",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
	}
	added := []string{"Priority", "WorkerQueue", "AddNodes", "QueuedOnHub", "Nominated", "PodSets", "Own", "Admitted", "Grace", "Claim", "Home", "Data", "Topology", "Previous", "Excluded", "Fields", "Runtime", "RequiredRuntime", "PinsRuntime"}
	if missing := unset(JobOf(object, map[string]string{"e": "f"}), added...); len(missing) > 0 {
		t.Errorf("JobOf does not fill in %v: fill it in, or name it in this test if it is not in the object", missing)
	}
}
