// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endedAt returns a container that ended at a time after t0.
func endedAt(after time.Duration, exitCode int32, reason, message string) corev1.ContainerStatus {
	s := container(over(exitCode, reason, message))
	s.State.Terminated.FinishedAt = metav1.NewTime(t0.Add(after))
	return s
}

func TestCause(t *testing.T) {
	tests := map[string]struct {
		reason string
		pods   []*corev1.Pod
		want   string
	}{
		"Unknown": {
			reason: "pods that did not fail say nothing",
			pods:   []*corev1.Pod{trainerPod(0, ready()), trainerPod(1, corev1.PodStatus{Phase: corev1.PodSucceeded})},
		},
		"NoPods": {reason: "nor do none"},
		"First": {
			reason: "of pods that ended by themselves, the first",
			pods: []*corev1.Pod{
				trainerPod(0, failed(endedAt(9*time.Second, 1, "Error", "connection reset by peer"))),
				trainerPod(3, failed(endedAt(7*time.Second, 1, "Error", "ValueError: loss is NaN"))),
				trainerPod(5, failed(endedAt(8*time.Second, 1, "Error", "connection reset by peer"))),
			},
			want: `pod job-node-0-3-x (trainer 3) on node gpu-3: container "node" ended with exit code 1: ValueError: loss is NaN`,
		},
		"OutOfMemory": {
			reason: "a pod that ran out of memory goes before those whose connection to it broke, whatever the clocks say",
			pods: []*corev1.Pod{
				trainerPod(0, failed(endedAt(7*time.Second, 1, "Error", "connection reset by peer"))),
				trainerPod(1, failed(endedAt(8*time.Second, 137, "OOMKilled", ""))),
			},
			want: `pod job-node-0-1-x (trainer 1) on node gpu-1: ` +
				`container "node" was killed because it ran out of memory (OOMKilled, exit code 137)`,
		},
		"NodeLost": {
			reason: "and a lost node before everything",
			pods: []*corev1.Pod{
				trainerPod(0, failed(endedAt(0, 137, "OOMKilled", ""))),
				trainerPod(1, disrupted(failed(), "DeletionByPodGC", "PodGC: node no longer exists")),
			},
			want: "pod job-node-0-1-x (trainer 1) on node gpu-1: the node does not exist any more",
		},
		"Evicted": {
			reason: "an eviction ends a pod with SIGTERM, and is said in place of the exit code",
			pods: []*corev1.Pod{trainerPod(1,
				reasoned(disrupted(failed(endedAt(0, 143, "Error", "")), "TerminationByKubelet", pressure), "Evicted", pressure))},
			want: `pod job-node-0-1-x (trainer 1) on node gpu-1: was evicted by the kubelet: The node was low on resource: memory. ` +
				`Threshold quantity: 100Mi, available: 51200Ki. Container node was using 60Gi, request is 0, has larger consumption of memory.`,
		},
		"Killed": {
			reason: "what was killed when the Job had failed is not the cause, though its index is lower",
			pods: []*corev1.Pod{
				with(trainerPod(0, failed(endedAt(0, 143, "Error", ""))), deleted),
				trainerPod(1, failed(endedAt(time.Minute, 2, "Error", "train.py: error: argument --lr"))),
			},
			want: `pod job-node-0-1-x (trainer 1) on node gpu-1: container "node" ended with exit code 2: train.py: error: argument --lr`,
		},
		"Deleted": {
			reason: "nor is one that exits with an error of its own because it was told to end",
			pods: []*corev1.Pod{
				with(trainerPod(0, failed(endedAt(0, 1, "Error", "KeyboardInterrupt"))), deleted),
				trainerPod(1, failed(endedAt(time.Minute, 2, "Error", ""))),
			},
			want: `pod job-node-0-1-x (trainer 1) on node gpu-1: container "node" ended with exit code 2`,
		},
		"Rejected": {
			reason: "predicate.go: a kubelet did not take the pod",
			pods: []*corev1.Pod{trainerPod(0, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfnvidia.com/gpu",
				Message: "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 1, capacity: 8"})},
			want: `pod job-node-0-0-x (trainer 0) on node gpu-0: ended with OutOfnvidia.com/gpu: ` +
				`Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 1, capacity: 8`,
		},
		"BackOffLimit": {
			reason: "with restartPolicy OnFailure the Job fails while its pod waits to be started again, and deletes it",
			pods: []*corev1.Pod{with(trainerPod(0, unready(corev1.PodRunning,
				restarted(6, waiting("CrashLoopBackOff", "back-off"), over(3, "Error", "bad checkpoint")))), deleted)},
			want: `pod job-node-0-0-x (trainer 0) on node gpu-0: container "node" ended with exit code 3: bad checkpoint`,
		},
		"Recovered": {
			reason: "a container that runs again has not ended the job, whatever it died of before",
			pods: []*corev1.Pod{
				trainerPod(0, containers(ready(), restarted(1, runs(), over(137, "OOMKilled", "")))),
				trainerPod(1, failed(endedAt(time.Hour, 1, "Error", "disk full"))),
			},
			want: `pod job-node-0-1-x (trainer 1) on node gpu-1: container "node" ended with exit code 1: disk full`,
		},
		"Sidecar": {
			reason: "a sidecar that is killed after the others does not count before them",
			pods: []*corev1.Pod{trainerPod(0, func() corev1.PodStatus {
				s := failed(endedAt(time.Second, 1, "Error", "out of bounds"))
				s.InitContainerStatuses = []corev1.ContainerStatus{endedAt(2*time.Second, 137, "Error", "")}
				s.InitContainerStatuses[0].Name = "proxy"
				return s
			}())},
			want: `pod job-node-0-0-x (trainer 0) on node gpu-0: container "node" ended with exit code 1: out of bounds`,
		},
		"Log": {
			reason: "of a log's end the last line counts: the first is anywhere in a traceback",
			pods: []*corev1.Pod{with(
				trainerPod(0, failed(endedAt(0, 1, "Error", "Traceback (most recent call last):\n  File \"train.py\"\nKeyError: 'labels'\n"))),
				func(pod *corev1.Pod) {
					pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
				})},
			want: `pod job-node-0-0-x (trainer 0) on node gpu-0: container "node" ended with exit code 1: KeyError: 'labels'`,
		},
		"LastAttempt": {
			reason: "the cause of the end is that of the last attempt",
			pods: []*corev1.Pod{
				with(trainerPod(0, failed(endedAt(0, 137, "OOMKilled", ""))), attempt(0)),
				with(trainerPod(0, failed(endedAt(time.Hour, 1, "Error", "disk full"))), attempt(1)),
			},
			want: `pod job-node-0-0-x (trainer 0) on node gpu-0: container "node" ended with exit code 1: disk full`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Cause(test.pods); got != test.want {
				t.Errorf("%s\nCause() = %q\n   want   %q", test.reason, got, test.want)
			}
		})
	}
}
