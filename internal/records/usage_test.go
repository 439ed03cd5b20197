// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/test/check"
)

const nvidia = corev1.ResourceName("nvidia.com/gpu")

func podSet(name string, count int32, requests corev1.ResourceList) v1alpha1.PodSet {
	return v1alpha1.PodSet{Name: name, Count: count, Requests: requests}
}

func amount(resourceName corev1.ResourceName, count int64) corev1.ResourceList {
	return corev1.ResourceList{resourceName: *resource.NewQuantity(count, resource.DecimalSI)}
}

// TestUsage: the times are of the worker's clock, which the hub's clock only bounds.
func TestUsage(t *testing.T) {
	created := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	now := created.Add(time.Hour)
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: created.Add(time.Duration(seconds) * time.Second)}
	}
	gang := []v1alpha1.PodSet{podSet("initializer", 1, amount("cpu", 4)), podSet("node", 2, amount(nvidia, 8))}
	for name, test := range map[string]struct {
		reason     string
		podSets    []v1alpha1.PodSet
		start, end *metav1.Time
		// want and shares are nil if they are not known.
		want, shares *int64
	}{
		"Ran":      {podSets: gang, start: at(60), end: at(70), want: new(int64(160))},
		"TwoKinds": {podSets: append(gang, podSet("eval", 1, amount("amd.com/gpu", 1))), start: at(0), end: at(10), want: new(int64(170))},
		"TPUs":     {podSets: []v1alpha1.PodSet{podSet("node", 4, amount("google.com/tpu", 4))}, start: at(0), end: at(10), want: new(int64(160))},
		"Shares": {
			reason:  "Nobody knows how many shares are a device.",
			podSets: append(gang, podSet("eval", 1, amount("nvidia.com/mig-1g.10gb", 3))), start: at(0), end: at(10),
			want: new(int64(160)), shares: new(int64(30)),
		},
		"VirtualGPU": {
			reason: "Megabytes and percent say how large a GPU is, and are no GPUs.",
			podSets: []v1alpha1.PodSet{podSet("node", 2, corev1.ResourceList{
				nvidia: resource.MustParse("1"), "nvidia.com/gpumem": resource.MustParse("8000"), "nvidia.com/gpucores": resource.MustParse("50"),
			})},
			start: at(0), end: at(10), want: new(int64(20)),
		},
		"NoStart":    {reason: "It did not run, or nobody saw it.", podSets: gang, end: at(70)},
		"NoEnd":      {reason: "The worker was lost.", podSets: gang, start: at(60)},
		"NoGPUs":     {podSets: []v1alpha1.PodSet{podSet("node", 1, amount("cpu", 4))}, start: at(0), end: at(10)},
		"NoPodSets":  {reason: "Older versions wrote none.", start: at(0), end: at(10)},
		"Backward":   {reason: "The worker's clock was set back.", podSets: gang, start: at(70), end: at(60), want: new(int64(0))},
		"OtherClock": {reason: "Two clocks need not agree.", podSets: gang, start: at(-86400), end: at(-86390), want: new(int64(160))},
		"LyingWorker": {
			reason:  "No attempt has run longer than its job has been on the hub.",
			podSets: gang, start: at(-1e9), end: at(1e9), want: new(int64(16 * 3600)),
		},
		"Overflow": {
			reason:  "Sums stop at the largest number.",
			podSets: []v1alpha1.PodSet{podSet("a", math.MaxInt32, amount(nvidia, math.MaxInt64)), podSet("b", 1, amount(nvidia, math.MaxInt64))},
			start:   at(0), end: at(10), want: new(int64(math.MaxInt64)),
		},
		"Negative": {podSets: []v1alpha1.PodSet{podSet("node", 2, amount(nvidia, -8))}, start: at(0), end: at(10)},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
			d.Spec.PodSets = test.podSets
			status := v1alpha1.DispatchStatus{StartTime: test.start, CompletionTime: test.end, History: make([]v1alpha1.Attempt, 2)}
			usageOf(d, &status, accelerators.Table{}, now).addTo(&status)
			want := []v1alpha1.Attempt{{}, {StartTime: test.start, GPUSeconds: test.want, ShareSeconds: test.shares}}
			check.Diff(t, want, status.History, test.reason)
		})
	}
}

// TestProductOf: products come from the worker. So the number of series is bounded by the fleet, whatever jobs select.
func TestProductOf(t *testing.T) {
	group := func(product string, name corev1.ResourceName) v1alpha1.NodeGroup {
		return v1alpha1.NodeGroup{Product: product, Resource: name}
	}
	for name, test := range map[string]struct {
		groups   []v1alpha1.NodeGroup
		selected string
		want     string
	}{
		"Only":            {groups: []v1alpha1.NodeGroup{group("H100", nvidia), group("H100", nvidia), group("", "")}, want: "H100"},
		"OfOtherResource": {groups: []v1alpha1.NodeGroup{group("MI300X", "amd.com/gpu")}, want: "nvidia.com/gpu"},
		"OneOfSeveral":    {groups: []v1alpha1.NodeGroup{group("H100", nvidia), group("A10", nvidia)}, selected: "A10", want: "A10"},
		"AnyOfSeveral":    {groups: []v1alpha1.NodeGroup{group("H100", nvidia), group("A10", nvidia)}, want: "nvidia.com/gpu"},
		"Invented":        {groups: []v1alpha1.NodeGroup{group("H100", nvidia), group("A10", nvidia)}, selected: "X", want: "nvidia.com/gpu"},
		"WorkerIsGone":    {selected: "A10", want: "nvidia.com/gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			d, worker := &v1alpha1.Dispatch{}, &v1alpha1.WorkerCluster{}
			worker.Status.NodeGroups = test.groups
			node := podSet("node", 1, amount(nvidia, 1))
			if test.selected != "" {
				node.NodeSelector = map[string]string{"nvidia.com/gpu.product": test.selected}
			}
			d.Spec.PodSets = []v1alpha1.PodSet{node}
			check.Equal(t, test.want, productOf(d, worker, gpus{"node", nvidia, accelerators.Device}, accelerators.Table{}), "productOf()")
		})
	}
}
