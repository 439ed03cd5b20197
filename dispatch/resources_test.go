// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestFromList(t *testing.T) {
	got := FromList(corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("1500u"),
		corev1.ResourceMemory: resource.MustParse("1500m"),
		gpu:                   resource.MustParse("8"),
	})
	want := Resources{corev1.ResourceCPU: 2, corev1.ResourceMemory: 2, gpu: 8}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fractions are rounded up (-want +got):\n%s", diff)
	}
}

func TestAddSub(t *testing.T) {
	node := FromList(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), gpu: resource.MustParse("1")})
	pod := Resources{}
	pod.Add(Resources{corev1.ResourceCPU: 500, gpu: 1})
	pod.Add(Resources{corev1.ResourceCPU: 500, gpu: 1, "amd.com/gpu": 1})
	node.Sub(pod)
	if diff := cmp.Diff(Resources{corev1.ResourceCPU: 1000, gpu: -1}, node); diff != "" {
		t.Errorf("a node gets no resource that it did not list (-want +got):\n%s", diff)
	}
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
		if got := format(tc.name, tc.amount); got != want {
			t.Errorf("format(%q, %d) = %q, want %q", tc.name, tc.amount, got, want)
		}
	}
}
