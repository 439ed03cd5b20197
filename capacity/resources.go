// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// Resources are amounts by resource: cpu in thousandths of a core, everything else in units. "pods" is a resource too.
type Resources map[corev1.ResourceName]int64

// add adds sign times other, and drops amounts that become zero.
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

// largestAmount is the largest amount that is counted: a ten-thousandth of int64 (900 TB), against overflows.
const largestAmount = math.MaxInt64 / 10_000

// amountOf converts an amount. A quantity that does not fit into an int64 would be read as 0 or as a wrong number.
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

// PodRequests returns what a pod requests, with its sidecars and overhead, as the scheduler counts it. What bound pods
// use is counted with it, and so is the demand of jobs.
func PodRequests(pod *corev1.Pod) corev1.ResourceList {
	return podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true})
}

// requestsOf returns what a pod counts for on its node: its requests, plus 1 for "pods".
func requestsOf(pod *corev1.Pod) Resources {
	resources := resourcesOf(PodRequests(pod))
	resources[corev1.ResourcePods] = 1
	return resources
}
