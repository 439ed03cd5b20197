// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetconstants "sigs.k8s.io/jobset/pkg/constants"
)

// defaultContainerAnnotation is how a pod says to kubectl which container is meant.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// nodePods are the pods of a step by node, each node's in the order in which they were tried, the latest last.
func nodePods(s *snapshot, of step) map[int32][]*corev1.Pod {
	perJob := of.podsPerJob
	var pods []*corev1.Pod
	for _, pod := range s.pods {
		if pod.Labels[jobsetv1alpha2.ReplicatedJobNameKey] == of.replicatedJob {
			pods = append(pods, pod)
			perJob = max(perJob, completionIndex(pod)+1)
		}
	}
	slices.SortFunc(pods, compareTries)
	nodes := map[int32][]*corev1.Pod{}
	for _, pod := range pods {
		node := number(pod.Labels[jobsetv1alpha2.JobIndexKey])*perJob + completionIndex(pod)
		nodes[node] = append(nodes[node], pod)
	}
	return nodes
}

// allNodes are the numbers of a step's nodes, those that it should have and those that have pods.
func allNodes(s *snapshot, of step) []int32 {
	nodes := map[int32]struct{}{}
	for node := range of.nodes() {
		nodes[node] = struct{}{}
	}
	for node := range nodePods(s, of) {
		nodes[node] = struct{}{}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// compareTries orders the pods of a node: by restarts of the JobSet, of the Job in it, and then by the Job's own retries. Creation
// times are in whole seconds, so of two of one second the one that has not ended is the later.
func compareTries(a, b *corev1.Pod) int {
	return cmp.Or(
		cmp.Compare(restartAttempt(a), restartAttempt(b)),
		cmp.Compare(number(a.Labels[jobsetconstants.JobRestartAttemptKey]), number(b.Labels[jobsetconstants.JobRestartAttemptKey])),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(liveliness(a), liveliness(b)),
		cmp.Compare(a.Name, b.Name),
	)
}

func liveliness(pod *corev1.Pod) int {
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		return 0
	case pod.DeletionTimestamp != nil:
		return 1
	default:
		return 2
	}
}

func restartAttempt(pod *corev1.Pod) int { return int(number(pod.Labels[jobsetconstants.RestartsKey])) }

func completionIndex(pod *corev1.Pod) int32 {
	return number(pod.Labels[batchv1.JobCompletionIndexAnnotation])
}

// number is that of a label, 0 where it is missing.
func number(label string) int32 {
	n, err := strconv.ParseInt(label, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// chooseContainer returns the container of a name, or that which does the step's work: it is called "node" or as the step is.
func chooseContainer(pod *corev1.Pod, of step, name string) (string, error) {
	regular := containerNames(pod.Spec.Containers)
	all := append(containerNames(pod.Spec.InitContainers), regular...)
	if name != "" {
		if !slices.Contains(all, name) {
			return "", fmt.Errorf("pod %q has no container %q%s; its containers are: %s", pod.Name, name, didYouMean(name, all), strings.Join(all, ", "))
		}
		return name, nil
	}
	for _, candidate := range []string{of.replicatedJob, constants.Node, pod.Annotations[defaultContainerAnnotation]} {
		if slices.Contains(regular, candidate) {
			return candidate, nil
		}
	}
	return regular[0], nil
}

func containerNames(containers []corev1.Container) []string {
	var names []string
	for i := range containers {
		names = append(names, containers[i].Name)
	}
	return names
}

// containerStatus is what a pod says of a container, nil if nothing.
func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}

// hasLog says whether a container has been started, so that there is a log, if an empty one.
func hasLog(status *corev1.ContainerStatus) bool {
	return status != nil && (status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil)
}

// hasPreviousLog says whether the run of a container that hasLog means is not the first.
func hasPreviousLog(status *corev1.ContainerStatus) bool {
	return status != nil && status.RestartCount > 0 && status.LastTerminationState.Terminated != nil
}
