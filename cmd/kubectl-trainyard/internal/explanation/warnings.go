// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
	"github.com/trainyard/trainyard/dispatch/record"
)

// mostWarnings is how many warnings are printed: the last ones.
const mostWarnings = 5

// warnings returns a table of the last Events of type Warning, the oldest first. It leaves out Events that say what is
// printed as the health of the copy or as the end of an attempt.
func (f Observation) warnings() *metav1.Table {
	table := output.NewTable(output.Column{Name: "Last-Seen"}, output.Column{Name: "Reason"}, output.Column{Name: "Message"})
	events := slices.DeleteFunc(slices.Clone(f.Warnings), func(event corev1.Event) bool { return f.prints(event.Reason) })
	slices.SortFunc(events, func(a, b corev1.Event) int {
		return cmp.Or(lastSeen(&a).Compare(lastSeen(&b).Time), cmp.Compare(a.Name, b.Name))
	})
	for i := max(0, len(events)-mostWarnings); i < len(events); i++ {
		output.Add(table, output.Age(lastSeen(&events[i]), f.Now)+" ago", events[i].Reason, oneLine(events[i].Message))
	}
	return table
}

// prints is true if the copy's trouble or the end of an attempt has the reason of the Event.
func (f Observation) prints(reason string) bool {
	if f.Dispatch == nil {
		return false
	}
	if trouble := record.Trouble(f.Dispatch); trouble != nil && trouble.Reason == reason {
		return true
	}
	return slices.ContainsFunc(f.Dispatch.Status.History, func(a v1alpha1.Attempt) bool { return string(a.Outcome) == reason })
}

// lastSeen is when an Event was last recorded. Which field says so depends on who recorded the Event.
func lastSeen(event *corev1.Event) metav1.Time {
	switch {
	case event.Series != nil:
		return metav1.NewTime(event.Series.LastObservedTime.Time)
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp
	case !event.EventTime.IsZero():
		return metav1.NewTime(event.EventTime.Time)
	default:
		return event.CreationTimestamp
	}
}
