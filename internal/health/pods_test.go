// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The tests use statuses that the parts of Kubernetes v1.36 write. The code that writes a status is named beside it.

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// trainerPod returns the pod of a trainer on a node, with the labels of JobSet and the Job controller.
func trainerPod(index int, status corev1.PodStatus) *corev1.Pod {
	return stepPod("node", index, status)
}

func stepPod(replicatedJob string, index int, status corev1.PodStatus) *corev1.Pod {
	name := fmt.Sprintf("job-%s-0-%d-x", replicatedJob, index)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(t0),
			Labels: map[string]string{
				"jobset.sigs.k8s.io/jobset-name":              "job",
				"jobset.sigs.k8s.io/jobset-uid":               "c0ffee",
				"jobset.sigs.k8s.io/replicatedjob-name":       replicatedJob,
				"jobset.sigs.k8s.io/job-index":                "0",
				"jobset.sigs.k8s.io/restart-attempt":          "0",
				"batch.kubernetes.io/job-completion-index":    strconv.Itoa(index),
				"trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
			},
		},
		Spec: corev1.PodSpec{
			NodeName:   "gpu-" + strconv.Itoa(index),
			Containers: []corev1.Container{{Name: "node", Image: "example.com/train:1"}},
		},
		Status: status,
	}
}

// with returns the pod after some changes.
func with(pod *corev1.Pod, changes ...func(*corev1.Pod)) *corev1.Pod {
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func attempt(n int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels["jobset.sigs.k8s.io/restart-attempt"] = strconv.Itoa(n) }
}

func jobAttempt(n int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels["jobset.sigs.k8s.io/job-restart-attempt"] = strconv.Itoa(n) }
}

func named(name string, age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Name, pod.CreationTimestamp = name, metav1.NewTime(t0.Add(-age)) }
}

func deleted(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(t0)), new(int64(30))
}

func without(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

func cond(t corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(t0)}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}
}

func over(exitCode int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Reason: reason, Message: message, StartedAt: metav1.NewTime(t0), FinishedAt: metav1.NewTime(t0.Add(5 * time.Second)),
		ContainerID: "containerd://0123456789abcdef",
	}}
}

func container(state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "node", Image: "example.com/train:1", State: state, Ready: state.Running != nil}
}

// restarted returns a container that ended like this and was started again n times.
func restarted(n int32, state, last corev1.ContainerState) corev1.ContainerStatus {
	s := container(state)
	s.RestartCount, s.LastTerminationState = n, last
	return s
}

// ready is the kubelet's status of a pod that runs and is ready.
func ready() corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			cond(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", ""),
			cond(corev1.PodInitialized, corev1.ConditionTrue, "", ""),
			cond(corev1.PodReady, corev1.ConditionTrue, "", ""),
			cond(corev1.ContainersReady, corev1.ConditionTrue, "", ""),
			cond(corev1.PodScheduled, corev1.ConditionTrue, "", ""),
		},
		ContainerStatuses: []corev1.ContainerStatus{container(runs())},
	}
}

// unready is the kubelet's status of a pod with a container that is not ready.
func unready(phase corev1.PodPhase, containers ...corev1.ContainerStatus) corev1.PodStatus {
	const message = "containers with unready status: [node]"
	return corev1.PodStatus{
		Phase: phase,
		Conditions: []corev1.PodCondition{
			cond(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", ""),
			cond(corev1.PodInitialized, corev1.ConditionTrue, "", ""),
			cond(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", message),
			cond(corev1.ContainersReady, corev1.ConditionFalse, "ContainersNotReady", message),
			cond(corev1.PodScheduled, corev1.ConditionTrue, "", ""),
		},
		ContainerStatuses: containers,
	}
}

// unbound is the status of a pod without a node.
func unbound(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{cond(corev1.PodScheduled, corev1.ConditionFalse, reason, message)},
	}
}

// failed is the status of a pod whose containers ended and are not restarted.
func failed(containers ...corev1.ContainerStatus) corev1.PodStatus {
	s := unready(corev1.PodFailed, containers...)
	s.Conditions[2].Reason, s.Conditions[3].Reason = "PodFailed", "PodFailed"
	return s
}

// disrupted is the status of a pod with the condition DisruptionTarget.
func disrupted(status corev1.PodStatus, reason, message string) corev1.PodStatus {
	status.Conditions = append(status.Conditions, cond(corev1.DisruptionTarget, corev1.ConditionTrue, reason, message))
	return status
}

// notReadyByNode is a running pod's status after its node stopped being ready. MarkPodsNotReady writes it.
func notReadyByNode() corev1.PodStatus {
	s := ready()
	s.Conditions[2].Status = corev1.ConditionFalse
	return s
}
