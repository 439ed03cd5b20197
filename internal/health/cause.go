// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ranks say how likely a pod's end is the cause of the other ends, the likeliest first. When one pod of a gang ends,
// its peers lose their connections and exit with errors of their own. Then the rest is killed.
const (
	notFailed = iota
	lostNode
	evicted
	outOfMemory
	neverStarted
	exited
	killed
	endedWhileDeleted
)

// Exit codes that a shell or a runtime reports when SIGKILL or SIGTERM ends a process.
const (
	exitCodeKilled     = 137
	exitCodeTerminated = 143
)

// failure is why a pod failed. The zero value: the pod has not failed.
type failure struct {
	rank     int
	finished int64 // when its container ended, in seconds of the node's clock; 0: unknown
	words    string
}

// Cause returns why a job failed, as one sentence from its pods, or "" if the pods do not show it. It looks at the
// failed pods of the last attempt. Pods that lost their node count first, then pods that were evicted, ran out of
// memory, could not start, ended by themselves, or were killed. Of equal pods, the first to end counts. This compares
// the clocks of nodes, so Cause may name the wrong one of two pods that ended at almost the same time.
func Cause(pods []*corev1.Pod) string {
	views := slices.DeleteFunc(presentAttempt(pods), func(v view) bool { return v.failure.rank == notFailed })
	if len(views) == 0 {
		return ""
	}
	first := slices.MinFunc(views, func(a, b view) int {
		return cmp.Or(cmp.Compare(a.failure.rank, b.failure.rank), compareFinished(a.failure, b.failure),
			a.position.compare(b.position), cmp.Compare(a.created, b.created), cmp.Compare(a.name, b.name))
	})
	return first.String() + ": " + first.failure.words
}

// compareFinished puts earlier ends first, and ends without a time last.
func compareFinished(a, b failure) int {
	if (a.finished == 0) != (b.finished == 0) {
		return cmp.Compare(b.finished, a.finished)
	}
	return cmp.Compare(a.finished, b.finished)
}

// failureOf says why a pod failed. A crashing pod counts as failed: the Job controller deletes it on the last try.
func failureOf(pod *corev1.Pod, v view) failure {
	switch v.own.Reason {
	case NodeLost:
		return failure{rank: lostNode, words: v.own.Message}
	case Evicted:
		return failure{rank: evicted, words: v.own.Message}
	}
	if s, end := failedContainer(pod); end != nil {
		rank := rankOf(end)
		if v.going && rank >= exited {
			rank = endedWhileDeleted
		}
		f := failure{rank: rank, words: ended(pod, s.Name, end)}
		if !end.FinishedAt.IsZero() {
			f.finished = end.FinishedAt.Unix()
		}
		return f
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" {
		return failure{rank: neverStarted, words: endOf(pod)}
	}
	return failure{}
}

func rankOf(t *corev1.ContainerStateTerminated) int {
	switch {
	case t.Reason == oomKilled:
		return outOfMemory
	case t.Reason == startError || t.Reason == couldNotRun:
		return neverStarted
	case t.ExitCode == exitCodeKilled || t.ExitCode == exitCodeTerminated:
		return killed
	}
	return exited
}

// failedContainer returns the container that failed and how: the likeliest cause or, of equals, the first to end. All
// containers share one clock. A sidecar that is stopped after the others does not count before them.
func failedContainer(pod *corev1.Pod) (worst *corev1.ContainerStatus, how *corev1.ContainerStateTerminated) {
	for s := range statuses(pod) {
		end := lastEnd(s)
		if end == nil || end.ExitCode == 0 || s.State.Running != nil {
			continue
		}
		if how == nil || cmp.Or(cmp.Compare(rankOf(end), rankOf(how)), end.FinishedAt.Compare(how.FinishedAt.Time)) < 0 {
			worst, how = s, end
		}
	}
	return worst, how
}

func endOf(pod *corev1.Pod) string {
	if s, end := failedContainer(pod); end != nil {
		return ended(pod, s.Name, end)
	}
	if pod.Status.Reason != "" {
		return "ended with " + pod.Status.Reason + because(line(pod.Status.Message))
	}
	return "ended without a reason" + because(line(pod.Status.Message))
}
