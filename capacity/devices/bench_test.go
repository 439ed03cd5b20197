// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/capacity/devices"
)

// fleet is a worker of 64 nodes with 8 devices each.
func fleet() *devices.Counter {
	c := devices.NewCounter()
	c.SetImplicit(true)
	for n := range 64 {
		c.SetSlice(slice(fmt.Sprint("n", n), 8))
	}
	c.SetClass(class("gpu", true))
	return c
}

// BenchmarkFirst counts a whole worker.
func BenchmarkFirst(b *testing.B) {
	for b.Loop() {
		fleet().Count(b.Context())
	}
}

// BenchmarkClaim counts what one more claim changes, and what its end changes.
func BenchmarkClaim(b *testing.B) {
	c := fleet()
	c.Count(b.Context())
	claims := []*resourceapi.ResourceClaim{held("p", "n7", "d0", "d1")}
	for b.Loop() {
		c.SetClaim(claims[0])
		c.Count(b.Context())
		c.DeleteClaim(types.NamespacedName{Namespace: "team", Name: "p-gpu"})
		c.Count(b.Context())
	}
}

// BenchmarkKinds is BenchmarkClaim with eight kinds of claims: four that are counted by numbers, and four for which the
// allocator is asked. Half of the node's devices are taken.
func BenchmarkKinds(b *testing.B) {
	c := fleet()
	for i := range int64(4) {
		c.SetTemplate(claimed(fmt.Sprint("selected-", i), exactly(i+1, "a")))
		alike := claimed(fmt.Sprint("alike-", i), exactly(i+1, ""))
		alike.Spec.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(driver + "/model"))}}
		c.SetTemplate(alike)
	}
	for i := range 4 {
		c.SetClaim(held(fmt.Sprint("other-", i), "n7", fmt.Sprint("d", i)))
	}
	c.Count(b.Context())
	claim := held("p", "n7", "d5", "d6")
	for b.Loop() {
		c.SetClaim(claim)
		c.Count(b.Context())
		c.DeleteClaim(types.NamespacedName{Namespace: "team", Name: "p-gpu"})
		c.Count(b.Context())
	}
}
