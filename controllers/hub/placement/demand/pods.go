// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

// OfPods returns the PodSet of equal pods of any kind of job: its name, how many there are, and what each one has. The
// error says what no Dispatch could record, or is an Obstacle.
func OfPods(name string, count int32, pod *corev1.PodSpec) (v1alpha1.PodSet, error) {
	pod = pod.DeepCopy()
	if err := completeRequests([]*corev1.PodSpec{pod}); err != nil {
		return v1alpha1.PodSet{}, err
	}
	podSet := podSetOf(name, count, pod)
	return podSet, checkForm(&podSet)
}

// Limit fails if a demand is too large to decide about. The error is an Obstacle.
func Limit(podSets []v1alpha1.PodSet) error { return limitPodSets(podSets) }

// podSetOf is a PodSet without a role. The requests of its pod are complete: see completeRequests.
func podSetOf(name string, count int32, pod *corev1.PodSpec) v1alpha1.PodSet {
	result := v1alpha1.PodSet{
		Name:         name,
		Count:        count,
		Requests:     capacity.PodRequests(&corev1.Pod{Spec: *pod}),
		NodeSelector: pod.NodeSelector,
		Tolerations:  pod.Tolerations,
		HostPorts:    hostports.Of(pod),

		TerminationGracePeriodSeconds: pod.TerminationGracePeriodSeconds,
	}
	if pod.Affinity != nil && pod.Affinity.NodeAffinity != nil {
		result.NodeAffinity = pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return result
}

// completeRequests defaults requests from limits, as the API server does. It fails if the pods request too many
// different resources.
func completeRequests(pods []*corev1.PodSpec) error {
	for _, pod := range pods {
		for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range containers {
				defaultRequests(&containers[i].Resources)
			}
		}
		defaultPodLevelRequests(pod)
	}
	return limitResources(pods)
}

func defaultRequests(resources *corev1.ResourceRequirements) {
	for name, limit := range resources.Limits {
		if _, requested := resources.Requests[name]; requested {
			continue
		}
		if resources.Requests == nil {
			resources.Requests = corev1.ResourceList{}
		}
		resources.Requests[name] = limit
	}
}

// defaultPodLevelRequests makes requests of the pod-level limits, as the API server does: what the containers request,
// or else the limit. It adds only resources that a pod-level limit names, because the sum of the containers counts
// for the others anyway. A resource that cannot be pod-level is left to the API server, which refuses it.
func defaultPodLevelRequests(pod *corev1.PodSpec) {
	if pod.Resources == nil || len(pod.Resources.Limits) == 0 {
		return
	}
	sum := podresource.AggregateContainerRequests(&corev1.Pod{Spec: *pod}, podresource.PodResourcesOptions{})
	requests := maps.Clone(pod.Resources.Requests)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	for name, limit := range pod.Resources.Limits {
		if _, requested := requests[name]; requested || !podresource.IsSupportedPodLevelResource(name) {
			continue
		}
		requests[name] = limit
		if amount, has := sum[name]; has && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			requests[name] = amount
		}
	}
	pod.Resources.Requests = requests
}
