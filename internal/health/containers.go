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
