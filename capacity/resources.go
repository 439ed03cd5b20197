// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// Resources are amounts: of cpu in thousandths of a core, of everything else in units. "pods" is one of them.
type Resources map[corev1.ResourceName]int64

// add adds other, times sign, and drops what becomes zero.
func (r Resources) add(other Resources, sign int64) {
	for name, amount := range other {
		if sum := r[name] + sign*amount; sum == 0 {
			delete(r, name)
		} else {
			r[name] = sum
		}
	}
}

func resourcesOf(list corev1.ResourceList) Resources {
	resources := make(Resources, len(list)+1)
	for name, quantity := range list {
		if amount := amountOf(name, quantity); amount != 0 {
			resources[name] = amount
		}
	}
	return resources
}

// largestAmount is the largest amount that is counted: a ten-thousandth of the largest number (900 TB), so that sums do
// not wrap around.
const largestAmount = math.MaxInt64 / 10_000

// amountOf converts an amount. What is too large for a number would be read as 0, or as any other number.
func amountOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	scale := resource.Scale(0)
	if name == corev1.ResourceCPU {
		scale = resource.Milli
	}
	switch {
	case quantity.Cmp(*resource.NewScaledQuantity(largestAmount, scale)) >= 0:
		return largestAmount
	case quantity.Sign() < 0:
		return 0
	}
	return quantity.ScaledValue(scale)
}

// requestsOf is what a pod counts for on its node, as the scheduler counts it, with the pod itself as one of "pods".
func requestsOf(pod *corev1.Pod) Resources {
	resources := resourcesOf(podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true}))
	resources[corev1.ResourcePods] = 1
	return resources
}
