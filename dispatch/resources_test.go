// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

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
