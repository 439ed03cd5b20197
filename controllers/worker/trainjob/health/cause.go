// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// How likely the end of a pod is the cause of the others' ends, the likeliest first. When one pod of a gang ends, its peers lose
// their connections and exit with an error of their own, and what is left is killed.
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

// What a shell or a runtime makes of the signals that end a process from outside: SIGKILL and SIGTERM.
const (
	exitCodeKilled     = 137
	exitCodeTerminated = 143
)

// failure is why a pod failed. The zero value: it has not.
type failure struct {
	rank     int
	finished int64 // when its container ended, in seconds of the node's clock; 0: unknown
	words    string
}

// Cause returns the cause for which a job has failed, as one sentence from its pods, or "" if they do not tell. Of the pods of the last
// attempt that failed, those count first that lost their node, then those that were evicted, ran out of memory, could not be
// started, ended by themselves, were killed; and among equals the one that ended first. That compares the clocks of nodes, so
// a sentence may name the wrong one of two pods that ended at almost the same time.
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

// compareFinished puts the earlier first, and those without a time last.
func compareFinished(a, b failure) int {
	if (a.finished == 0) != (b.finished == 0) {
		return cmp.Compare(b.finished, a.finished)
	}
	return cmp.Compare(a.finished, b.finished)
}

// failureOf says why a pod failed. One that has not failed, but was crashing, counts too: the Job controller deletes it when its
// Job may not be tried again.
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

// failedContainer returns the container of a pod that failed, and how: of several the likeliest cause, then the first to end.
// One clock is enough for that. A sidecar that is stopped after the others does not count before them.
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

// endOf says how a failed pod ended.
func endOf(pod *corev1.Pod) string {
	if s, end := failedContainer(pod); end != nil {
		return ended(pod, s.Name, end)
	}
	if pod.Status.Reason != "" {
		return "ended with " + pod.Status.Reason + because(line(pod.Status.Message))
	}
	return "ended without a reason" + because(line(pod.Status.Message))
}
