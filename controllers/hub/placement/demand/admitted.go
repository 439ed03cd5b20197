// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Admitted returns the PodSets with what the admission of a worker makes of their pods. changed is false if that is the
// same. A PodSet stays as it is if the worker has said nothing about its pods, or something that no Dispatch could hold.
func Admitted(podSets []v1alpha1.PodSet, pods []trainjobs.AdmittedPod) (admitted []v1alpha1.PodSet, changed bool) {
	admitted = slices.Clone(podSets)
	for i := range pods {
		at := slices.IndexFunc(podSets, func(set v1alpha1.PodSet) bool { return set.Name == pods[i].Name })
		if at < 0 || pods[i].Spec == nil {
			continue
		}
		set := admittedPodSet(&podSets[at], pods[i].Spec)
		AddDevices(&set, pods[i].Devices)
		if checkForm(&set) == nil && !equality.Semantic.DeepEqual(set, podSets[at]) {
			admitted[at], changed = set, true
		}
	}
	if !changed || limitResources(specsOf(pods)) != nil || limitPodSets(admitted) != nil {
		return podSets, false
	}
	return admitted, true
}

// admittedPodSet returns the PodSet with this pod.
func admittedPodSet(assumed *v1alpha1.PodSet, pod *corev1.PodSpec) v1alpha1.PodSet {
	set := podSetOf(assumed.Name, assumed.Count, pod)
	set.Role, set.Concurrent, set.UnmergedRequests = assumed.Role, assumed.Concurrent, assumed.UnmergedRequests
	set.Tolerations = slices.DeleteFunc(slices.Clone(set.Tolerations), isDefaultToleration)
	if grace := set.TerminationGracePeriodSeconds; assumed.TerminationGracePeriodSeconds == nil && grace != nil &&
		*grace == corev1.DefaultTerminationGracePeriodSeconds {
		set.TerminationGracePeriodSeconds = nil
	}
	return set
}

// AddDevices adds the devices that a pod claims to its requests, and the claims that are counted themselves. The worker
// chooses the names and numbers.
func AddDevices(set *v1alpha1.PodSet, claimed map[corev1.ResourceName]int64) {
	if len(claimed) > MaxResources {
		return
	}
	for name, count := range claimed {
		if !v1alpha1.IsClaimed(name) || count <= 0 {
			continue
		}
		if set.Requests == nil {
			set.Requests = corev1.ResourceList{}
		}
		set.Requests[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
}

// isDefaultToleration says whether the API server gives all pods this toleration. It is for nodes that are ill, which
// take no new pods.
func isDefaultToleration(t corev1.Toleration) bool {
	return t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds != nil && *t.TolerationSeconds > 0 &&
		(t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

func specsOf(pods []trainjobs.AdmittedPod) (specs []*corev1.PodSpec) {
	for i := range pods {
		if pods[i].Spec != nil {
			specs = append(specs, pods[i].Spec)
		}
	}
	return specs
}
