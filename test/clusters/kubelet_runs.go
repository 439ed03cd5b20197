// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// endedIn says whether the run has ended, or the pod.
func (r containerRun) endedIn(pod *corev1.Pod) bool {
	status := containerStatus(pod, r.container)
	return pod.UID != r.pod || status == nil || status.State.Running == nil || status.RestartCount != r.number
}

// runningRun returns the run of a container that runs now.
func runningRun(pod *corev1.Pod, container string) (run containerRun, ok bool) {
	status := containerStatus(pod, container)
	if status == nil || status.State.Running == nil {
		return containerRun{}, false
	}
	started := status.State.Running.StartedAt.Time
	return containerRun{pod: pod.UID, container: container, number: status.RestartCount, started: started}, true
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

const (
	// logLineLength is how many bytes a line of LogSizeAnnotation has, with its end.
	logLineLength = 128
	// numberEnd is where the number of such a line ends.
	numberEnd = len("line 000000000")
)

var (
	// maxLogSize is the largest value of LogSizeAnnotation.
	maxLogSize = resource.MustParse("1Gi")
	// logLine is a line of LogSizeAnnotation without its number and its end.
	logLine = append([]byte("line 000000000 "), bytes.Repeat([]byte("."), logLineLength-numberEnd-1)...)
)

// runLog is what a run of a container has printed: a number of bytes in lines that appendLine makes, then more lines.
// So a large log takes no memory.
type runLog struct {
	size  int64
	lines []string
}

// log is what the run has printed so far, by the pod's annotations.
func (r containerRun) log(pod *corev1.Pod) (runLog, error) {
	var log runLog
	if value := r.annotation(pod, LogSizeAnnotation); value != "" {
		size, err := resource.ParseQuantity(value)
		if err != nil || size.Sign() < 0 || size.Cmp(maxLogSize) > 0 {
			return runLog{}, fmt.Errorf("annotation %s of pod %q is %q: want a number of bytes up to %s",
				LogSizeAnnotation, pod.Name, value, &maxLogSize)
		}
		log.size = size.Value()
	}
	if text := strings.TrimSuffix(r.annotation(pod, LogAnnotation), "\n"); text != "" {
		log.lines = strings.Split(text, "\n")
	}
	return log, nil
}

// annotation returns the value of an annotation for this run: the container's own, or that of all containers.
func (r containerRun) annotation(pod *corev1.Pod, key string) string {
	if r.number > 0 {
		key = fmt.Sprintf("%s-%d", key, r.number)
	}
	if value, ok := pod.Annotations[key+"."+r.container]; ok {
		return value
	}
	return pod.Annotations[key]
}

// numbered is how many lines have the bytes of LogSizeAnnotation. The last one may be shorter.
func (l runLog) numbered() int { return int((l.size + logLineLength - 1) / logLineLength) }

// count is how many lines the log has.
func (l runLog) count() int { return l.numbered() + len(l.lines) }

// bytes is how long the log is.
func (l runLog) bytes() int64 {
	all := l.size
	for _, line := range l.lines {
		all += int64(len(line)) + 1
	}
	return all
}

// writeTo writes the whole log.
func (l runLog) writeTo(w io.Writer) error {
	buffer := bufio.NewWriterSize(w, logBuffer)
	var line []byte
	for i := range l.count() {
		line = l.appendLine(line[:0], i)
		if _, err := buffer.Write(line); err != nil {
			return err
		}
	}
	return buffer.Flush()
}

// appendLine appends one line with its end.
func (l runLog) appendLine(to []byte, index int) []byte {
	numbered := l.numbered()
	if index >= numbered {
		return append(append(to, l.lines[index-numbered]...), '\n')
	}
	start := len(to)
	to = append(to, logLine[:min(logLineLength, l.size-int64(index)*logLineLength)]...)
	for at, number := start+numberEnd-1, index+1; number > 0; at, number = at-1, number/10 {
		if at < len(to) {
			to[at] = byte('0' + number%10)
		}
	}
	to[len(to)-1] = '\n'
	return to
}
