// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	corev1 "k8s.io/api/core/v1"
)

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
