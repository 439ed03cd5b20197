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

	"github.com/trainyard/trainyard/internal/hub"
)

// defaultContainerAnnotation is the annotation of a pod that names kubectl's default container.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// nodePods returns the pods of a step by node. The pods of a node are in the order of the tries, the latest last.
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

// allNodes returns the numbers of a step's nodes: the expected nodes, and nodes that have pods.
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

// compareTries orders the pods of a node by restarts of the JobSet, then of the Job in it, then by the Job's own
// retries. Creation times are in whole seconds, so of two pods of one second, the running one is the later.
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

// number returns the number in a label, or 0 if the label is missing.
func number(label string) int32 {
	n, err := strconv.ParseInt(label, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// chooseContainer returns the container with this name, or the step's own: "node" or the step's name.
func chooseContainer(pod *corev1.Pod, of step, name string) (string, error) {
	regular := containerNames(pod.Spec.Containers)
	all := append(containerNames(pod.Spec.InitContainers), regular...)
	if name != "" {
		if !slices.Contains(all, name) {
			return "", fmt.Errorf("pod %q has no container %q%s; its containers are: %s", pod.Name, name, hub.DidYouMean(name, all), strings.Join(all, ", "))
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

// containerStatus returns a container's status, or nil.
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

// hasLog says whether a container has been started, so that it has a log, even an empty one.
func hasLog(status *corev1.ContainerStatus) bool {
	return status != nil && (status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil)
}

// hasPreviousLog says whether the container has run before the current run.
func hasPreviousLog(status *corev1.ContainerStatus) bool {
	return status != nil && status.RestartCount > 0 && status.LastTerminationState.Terminated != nil
}
