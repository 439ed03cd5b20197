// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/dispatch/record"
)

// Names of the spans that only the worker knows. The hub has no record of pods, so the agent makes them, and the plugin
// makes those of pods for a user who may see the pods.
const (
	// Building goes from the creation of the copy to that of its JobSet.
	Building = "building"
	// Scheduling goes from the creation of the first pod until all pods have nodes.
	Scheduling = "scheduling"
	// Pulling goes from the first node until all containers have started. Pulling images takes most of it.
	Pulling = "pulling"
	// Readying goes from the first container that has started until all pods are ready.
	Readying = "readying"
)

// PodSpans returns the spans of the pods of an attempt, by the clock of their cluster. Pods that have been started again
// do not say any more when they first were: then there are less spans.
func PodSpans(of *Span, t *Tree, pods []*corev1.Pod) []Span {
	var created, scheduled, started, ready times
	for _, pod := range pods {
		created.add(pod.CreationTimestamp.Time)
		scheduled.add(conditionTime(pod, corev1.PodScheduled))
		started.add(startOf(pod))
		ready.add(conditionTime(pod, corev1.PodReady))
	}
	var spans []Span
	for _, step := range []struct {
		name     string
		from, to times
	}{{Scheduling, created, scheduled}, {Pulling, scheduled, started}, {Readying, started, ready}} {
		if step.from.first.IsZero() {
			break
		}
		span := t.span(step.name, of.Attempt)
		span.Parent, span.Worker, span.Pods, span.From = of.ID, of.Worker, true, step.from.first
		if step.to.missing == 0 {
			span.To = step.to.last
		} else if !of.Open() {
			break // It did not happen, or the pods do not say so any more.
		}
		spans = append(spans, span)
	}
	return spans
}

// OfCopy returns the trace to which a copy belongs, and the spans in it that the worker knows. The trace is nil if the
// TrainJob is no copy.
func OfCopy(job metav1.Object, jobSet metav1.Object, pods []*corev1.Pod) (*Tree, []Span) {
	uid, attempt := record.OriginOn(job), record.AttemptOn(job)
	if uid == "" || attempt == 0 {
		return nil, nil
	}
	t := &Tree{ID: IDOf(uid), UID: uid, Job: types.NamespacedName{Namespace: job.GetNamespace(), Name: job.GetName()}}
	of := t.span(Attempt, attempt)
	of.To = jobSet.GetCreationTimestamp().Time // It does not go on: what has not happened by now is left out.
	building := t.span(Building, attempt)
	building.Parent, building.Pods = of.ID, true
	building.From, building.To = job.GetCreationTimestamp().Time, jobSet.GetCreationTimestamp().Time
	return t, append([]Span{building}, PodSpans(&of, t, pods)...)
}

// Present is the attempt to which the pods on the worker belong, nil if the job has none.
func (t *Tree) Present() *Span {
	for i := len(t.Spans) - 1; i >= 0; i-- {
		if span := &t.Spans[i]; (span.Name == Attempt || span.Name == Root) && (span.Worker != "" || span.Name == Root) {
			return span
		}
	}
	return nil
}

// times are when something happened to pods.
type times struct {
	first, last time.Time
	// missing is to how many pods it did not happen.
	missing int
}

func (t *times) add(at time.Time) {
	switch {
	case at.IsZero():
		t.missing++
		return
	case t.first.IsZero() || at.Before(t.first):
		t.first = at
	}
	if at.After(t.last) {
		t.last = at
	}
}

// conditionTime is since when a condition of a pod is True. A pod that has ended is not ready any more.
func conditionTime(pod *corev1.Pod, name corev1.PodConditionType) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == name && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// startOf is when the last container of a pod has started, zero if one has not or has been started again.
func startOf(pod *corev1.Pod) (last time.Time) {
	if len(pod.Status.ContainerStatuses) < len(pod.Spec.Containers) {
		return time.Time{}
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		var at time.Time
		switch {
		case status.RestartCount > 0:
		case status.State.Running != nil:
			at = status.State.Running.StartedAt.Time
		case status.State.Terminated != nil:
			at = status.State.Terminated.StartedAt.Time
		}
		if at.IsZero() {
			return time.Time{}
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}
