// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/views/output"
)

// Needs returns a demand in a few words, such as "4x8 nvidia.com/gpu": 4 pods with 8 each. It names devices such as
// GPUs, or cpu if there are none. It skips initializers if there are other pods.
func Needs(podSets []v1alpha1.PodSet) string {
	if len(podSets) == 0 {
		return output.Unknown
	}
	podSets = main(podSets)
	counts, order := map[string]int32{}, []string(nil)
	for i := range podSets {
		each := perPod(podSets[i].Requests, isDevice)
		if each == "" && !slices.ContainsFunc(podSets, hasDevice) {
			each = perPod(podSets[i].Requests, func(name corev1.ResourceName) bool { return name == corev1.ResourceCPU })
		} else if each == "" {
			continue
		}
		if _, known := counts[each]; !known {
			order = append(order, each)
		}
		counts[each] += podSets[i].Count
	}
	var texts []string
	for _, each := range order {
		if each == "" {
			texts = append(texts, fmt.Sprintf("%d without requests", counts[each]))
		} else {
			texts = append(texts, fmt.Sprintf("%dx%s", counts[each], each))
		}
	}
	return strings.Join(texts, " + ")
}

// main leaves out initializers, if there are other pods.
func main(podSets []v1alpha1.PodSet) []v1alpha1.PodSet {
	rest := slices.DeleteFunc(slices.Clone(podSets), func(p v1alpha1.PodSet) bool {
		return p.Count == 0 || p.Role == v1alpha1.RoleDatasetInitializer || p.Role == v1alpha1.RoleModelInitializer
	})
	if len(rest) == 0 {
		return podSets
	}
	return rest
}

func hasDevice(podSet v1alpha1.PodSet) bool { return perPod(podSet.Requests, isDevice) != "" }

// isDevice says whether a resource belongs to a device plugin.
func isDevice(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// perPod lists a pod's requests of the selected resources.
func perPod(requests corev1.ResourceList, which func(corev1.ResourceName) bool) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if quantity := requests[name]; which(name) && !quantity.IsZero() {
			texts = append(texts, amount(quantity)+" "+dispatch.DisplayName(name))
		}
	}
	if len(texts) > 1 {
		return "(" + strings.Join(texts, ", ") + ")"
	}
	return strings.Join(texts, "")
}

func amount(quantity resource.Quantity) string { return quantity.String() }

// Requests lists all requests of a pod, devices such as GPUs first.
func Requests(requests corev1.ResourceList) string {
	var devices, others []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		text := amount(requests[name]) + " " + dispatch.DisplayName(name)
		if isDevice(name) {
			devices = append(devices, text)
		} else {
			others = append(others, text)
		}
	}
	return output.Or(strings.Join(append(devices, others...), ", "), output.None)
}
