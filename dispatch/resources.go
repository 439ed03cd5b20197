// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Resources are amounts by name: cpu in millicores, all others in units (bytes, GPUs, pods).
type Resources map[corev1.ResourceName]int64

// FromList converts a list. It rounds fractions up, as the scheduler does. Too large amounts become the largest number.
func FromList(list corev1.ResourceList) Resources {
	r := make(Resources, len(list))
	for name, quantity := range list {
		scale := resource.Scale(0)
		if name == corev1.ResourceCPU {
			scale = resource.Milli
		}
		r[name] = scaledUpTo(quantity, scale)
	}
	return r
}

// AllocatableOf returns the sum of what all nodes of the groups have.
func AllocatableOf(groups []v1alpha1.NodeGroup) Resources {
	all := Resources{}
	for i := range groups {
		for name, amount := range FromList(groups[i].Allocatable) {
			all[name] += amount * int64(groups[i].Nodes)
		}
	}
	return all
}

// scaledUpTo is ScaledValue, but returns the largest number for too large an amount, not 0 or a wrapped number.
func scaledUpTo(quantity resource.Quantity, scale resource.Scale) int64 {
	if quantity.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0 {
		return math.MaxInt64
	}
	if quantity.Cmp(*resource.NewScaledQuantity(-math.MaxInt64, scale)) <= 0 {
		return -math.MaxInt64
	}
	return quantity.ScaledValue(scale)
}

// Add adds the other amounts to r. A sum that is too large becomes the largest number.
func (r Resources) Add(other Resources) {
	for name, amount := range other {
		r[name] = sumUpTo(r[name], amount)
	}
}

// AddTimes adds the other amounts count times, for count nodes that have these amounts each.
func (r Resources) AddTimes(other Resources, count int) {
	for name, amount := range other {
		r[name] = sumUpTo(r[name], mulUpTo(max(amount, 0), int64(max(count, 0))))
	}
}

// FreeOf returns what a node has free of what it has. A claim of which it has none never fits there.
func FreeOf(allocatable, used Resources) Resources {
	free := maps.Clone(allocatable)
	free.Sub(used)
	for name, amount := range allocatable {
		if amount == 0 && v1alpha1.IsDeviceClaim(name) {
			free[name] = Never
		}
	}
	return free
}

// Sub subtracts the other amounts from r. An amount may become negative, as on an overcommitted node. Sub ignores
// resources that r does not have, so a node does not get a resource that it does not list. Every node has host ports.
func (r Resources) Sub(other Resources) {
	for name, amount := range other {
		had, has := r[name]
		if !has && hostports.Is(name) {
			had, has = hostports.Capacity(name), true
		}
		if has {
			r[name] = sumUpTo(had, -max(amount, -math.MaxInt64))
		}
	}
}

// format returns an amount as people write it: "8 nvidia.com/gpu", "500m cpu", "8Gi memory".
func format(name corev1.ResourceName, amount int64) string {
	switch {
	case name == corev1.ResourcePods:
		return formatAmount(name, amount) + plural(" pod slot", amount)
	case hostports.Is(name):
		return hostports.Words(name)
	}
	if class, claimed := strings.CutPrefix(string(name), v1alpha1.ClaimedDevices); claimed {
		return formatAmount(name, amount) + plural(" device", amount) + " of class " + class
	}
	if v1alpha1.IsDeviceClaim(name) {
		return formatAmount(name, amount) + plural(" claim", amount) + " of " + v1alpha1.WordsOfDeviceClaim(name)
	}
	return formatAmount(name, amount) + " " + string(name)
}

// DisplayName returns the name of a resource for people. Devices that pods claim, and claims, have no name of their own.
func DisplayName(name corev1.ResourceName) string {
	if class, claimed := strings.CutPrefix(string(name), v1alpha1.ClaimedDevices); claimed {
		return "devices of class " + class
	}
	if v1alpha1.IsDeviceClaim(name) {
		return "claims of " + v1alpha1.WordsOfDeviceClaim(name)
	}
	return string(name)
}

// formatAmount is format without the name of the resource.
func formatAmount(name corev1.ResourceName, amount int64) string {
	switch {
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(amount, resource.DecimalSI).String()
	case isBytes(name):
		return resource.NewQuantity(amount, resource.BinarySI).String()
	}
	return strconv.FormatInt(amount, 10)
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsExtended says whether a name belongs to a device plugin, such as nvidia.com/gpu.
func IsExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !hostports.Is(name) && !v1alpha1.IsDeviceClaim(name) && !strings.HasPrefix(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// sumUpTo stops at the largest number, and at its negative, instead of wrapping around.
func sumUpTo(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < -math.MaxInt64-b:
		return -math.MaxInt64
	}
	return a + b
}

// addUpTo and mulUpTo stop at the largest number instead of wrapping around. Their operands are not negative.
func addUpTo(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func mulUpTo(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
