// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// containerRun is one run of a container: from a start of it to its end.
type containerRun struct {
	pod       types.UID
	container string
	number    int32 // 0 is the first
	started   time.Time
}

// findRun returns the run of a container whose log is asked for, or why there is none, in the words of a kubelet.
func findRun(pod *corev1.Pod, container string, previous bool) (containerRun, error) {
	run := containerRun{pod: pod.UID, container: container}
	status := containerStatus(pod, container)
	if status == nil {
		return run, fmt.Errorf("container %q in pod %q is not available", container, pod.Name)
	}
	run.number = status.RestartCount
	// The count goes up with a start. So the run before is one less, unless the container still waits for the next start.
	waiting, last := status.State.Waiting, status.LastTerminationState.Terminated
	switch {
	case previous && last == nil:
		return run, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
	case previous:
		run.started = last.StartedAt.Time
		if waiting == nil {
			run.number--
		}
	case status.State.Running != nil:
		run.started = status.State.Running.StartedAt.Time
	case status.State.Terminated != nil:
		run.started = status.State.Terminated.StartedAt.Time
	case last != nil:
		run.started = last.StartedAt.Time
	case waiting != nil:
		return run, fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod.Name, waiting.Reason)
	default:
		return run, fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
	}
	return run, nil
}

// lines are what the run has printed so far, by the pod's annotations.
func (r containerRun) lines(pod *corev1.Pod) []string {
	key := LogAnnotation
	if r.number > 0 {
		key = fmt.Sprintf("%s-%d", LogAnnotation, r.number)
	}
	text, ok := pod.Annotations[key+"."+r.container]
	if !ok {
		text = pod.Annotations[key]
	}
	if text = strings.TrimSuffix(text, "\n"); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func containerStatus(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == container {
				return &statuses[i]
			}
		}
	}
	return nil
}
