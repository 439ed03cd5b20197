// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Reasons that a container runtime writes for a container that has ended.
const (
	oomKilled       = "OOMKilled"
	startError      = "StartError"         // containerd and CRI-O
	couldNotRun     = "ContainerCannotRun" // dockershim
	pullsTooManyNow = "pull QPS exceeded"  // the kubelet's own limit; it is over in seconds
)

// statuses returns the statuses of all containers. Init containers, with the sidecars, come first.
func statuses(pod *corev1.Pod) iter.Seq[*corev1.ContainerStatus] {
	return func(yield func(*corev1.ContainerStatus) bool) {
		for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// containerTrouble returns the worst trouble of a container that could not run.
func containerTrouble(pod *corev1.Pod) Trouble {
	var worst Trouble
	for s := range statuses(pod) {
		t := startTrouble(pod, s)
		if t.Reason != "" && (worst.Reason == "" || rank(t.Reason) < rank(worst.Reason)) {
			worst = t
		}
	}
	return worst
}

func startTrouble(pod *corev1.Pod, s *corev1.ContainerStatus) Trouble {
	end := lastEnd(s)
	if s.State.Running == nil && end != nil && (end.Reason == startError || end.Reason == couldNotRun) {
		return Trouble{ContainerStartFailed, startFailed(s) + because(endWords(pod, s.Name, end))}
	}
	w := s.State.Waiting
	if w == nil {
		return Trouble{}
	}
	cause := waitingWords(w)
	for _, k := range kinds {
		if slices.Contains(k.waiting, w.Reason) && cause != pullsTooManyNow {
			return Trouble{k.reason, k.words(s) + because(cause)}
		}
	}
	return Trouble{}
}

func startFailed(s *corev1.ContainerStatus) string {
	return fmt.Sprintf("container %q cannot be started", s.Name)
}

// containerWaits says why a pod is not ready that has a node and, as far as is known, its volumes and its network.
func containerWaits(pod *corev1.Pod) string {
	for s := range statuses(pod) {
		switch {
		case s.Ready:
		case s.State.Running != nil && isInit(pod, s.Name):
			return fmt.Sprintf("is initialized by container %q", s.Name)
		case s.State.Running != nil:
			return fmt.Sprintf("has the container %q, which runs and is not ready", s.Name)
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			return "does not stay up: " + ended(pod, s.Name, s.State.Terminated)
		case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
			return fmt.Sprintf("waits for its container %q (%s)", s.Name, s.State.Waiting.Reason)
		}
	}
	return "has not started yet"
}

func isInit(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
}

func restarts(pod *corev1.Pod) (sum int32) {
	for s := range statuses(pod) {
		sum += s.RestartCount
	}
	return sum
}

func someRestartedDoesNotRun(pod *corev1.Pod) bool {
	for s := range statuses(pod) {
		done := s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		if s.RestartCount > 0 && s.State.Running == nil && !done {
			return true
		}
	}
	return false
}

// crashOf describes the last end of the container that was restarted most often.
func crashOf(pod *corev1.Pod) string {
	var most *corev1.ContainerStatus
	for s := range statuses(pod) {
		if s.RestartCount > 0 && (most == nil || s.RestartCount > most.RestartCount) {
			most = s
		}
	}
	if most == nil {
		return ""
	}
	if end := lastEnd(most); end != nil {
		return "it ends again and again, last " + ended(pod, most.Name, end)
	}
	return fmt.Sprintf("its container %q ends again and again", most.Name)
}

// lastEnd returns how a container ended last. nil: it has never ended.
func lastEnd(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

func ended(pod *corev1.Pod, name string, t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %q ended with exit code %d", name, t.ExitCode)
	switch {
	case t.Reason == oomKilled:
		text = fmt.Sprintf("container %q was killed because it ran out of memory (OOMKilled, exit code %d)", name, t.ExitCode)
	case t.Signal != 0:
		text += fmt.Sprintf(" (signal %d)", t.Signal)
	case t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed":
		text += " (" + t.Reason + ")"
	}
	return text + because(endWords(pod, name, t))
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

// Reasons that Kubernetes writes for a pod or its condition DisruptionTarget, and exports no constants for.
const (
	deletedByTaintManager = "DeletionByTaintManager"
	deletedByPodGC        = "DeletionByPodGC"
	evictedByAPI          = "EvictionByEvictionAPI"
)

// disruption returns a trouble that the pod did not cause itself: the loss of its node, or an eviction.
func disruption(pod *corev1.Pod) Trouble {
	switch pod.Status.Reason {
	case "NodeLost":
		return Trouble{NodeLost, "the node does not answer"}
	case "NodeShutdown", "Shutdown", "Terminated": // a node that shuts down refused or ended the pod
		return Trouble{NodeLost, "the node is shutting down"}
	}
	if c := condition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return disruptionTarget(c)
	}
	if nodeNotReady(pod) {
		return Trouble{NodeLost, "the node is not ready"}
	}
	switch pod.Status.Reason {
	case "Evicted", "Preempting":
		return Trouble{Evicted, "was evicted by the kubelet" + because(line(pod.Status.Message))}
	}
	return Trouble{}
}

func disruptionTarget(c *corev1.PodCondition) Trouble {
	switch c.Reason {
	case deletedByPodGC:
		return Trouble{NodeLost, "the node does not exist any more"}
	case deletedByTaintManager:
		return Trouble{NodeLost, "the node has a NoExecute taint: it does not answer, or was taken out of service"}
	case corev1.PodReasonPreemptionByScheduler:
		return Trouble{Evicted, "was preempted to make room for pods of higher priority"}
	case evictedByAPI:
		return Trouble{Evicted, "was evicted through the API, as when its node is drained"}
	case corev1.PodReasonTerminationByKubelet:
		return Trouble{Evicted, "was evicted by the kubelet" + because(line(c.Message))}
	}
	return Trouble{Evicted, "was evicted (" + c.Reason + ")" + because(line(c.Message))}
}

// nodeNotReady recognises the pods of a node that is not ready. Minutes before it evicts them, the node lifecycle
// controller sets Ready to False and changes nothing else. A kubelet gives a reason for Ready, and also sets
// ContainersReady to False, unless a readiness gate is closed.
func nodeNotReady(pod *corev1.Pod) bool {
	ready := condition(pod, corev1.PodReady)
	return pod.Status.Phase == corev1.PodRunning && ready != nil && ready.Status == corev1.ConditionFalse && ready.Reason == "" &&
		is(pod, corev1.ContainersReady, corev1.ConditionTrue)
}
