// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/health"
	"github.com/trainyard/trainyard/views/jobs"
	"github.com/trainyard/trainyard/views/output"
)

// nowhereAdvice is for a job that waits for no room.
const nowhereAdvice = "change the job, its policy or the workers as the table of workers says: as they are, neither the end of another job " +
	"nor more nodes like those that are there would let it run"

// fitsNowhere is true if no worker could take the job if nothing else ran there, nor with more nodes like its own.
func fitsNowhere(workers []v1alpha1.ClusterExplanation) bool {
	return len(workers) > 0 && !slices.ContainsFunc(workers, func(worker v1alpha1.ClusterExplanation) bool {
		return dispatch.RemedyOf(worker.Reason) == dispatch.Waiting
	})
}

// agentAdvice says what they can do about trouble that the worker's agent reports, from package
// controllers/worker/trainjob.
var agentAdvice = map[string]string{
	"RuntimeNotFound": "create the runtime on the worker, or let the policy propagate it (propagate.runtimes)",
	"BuildFailed":     "correct the job or its runtime as the message says",
	"ApplyFailed":     "correct what the worker's API server refuses, or raise the limit there",
	"JobSetConflict":  "delete the JobSet of that name on the worker, or give the job another name",
}

// healthy is the condition Healthy, nil if the job has had no trouble or its copy is not live.
func (f Observation) healthy() *metav1.Condition {
	switch f.State() {
	case Running, Lost, Evicting:
		return f.condition(v1alpha1.DispatchHealthy)
	default:
		return nil
	}
}

// health says how the copy is, if it has had trouble.
func (f Observation) health() string {
	healthy := f.healthy()
	if healthy == nil {
		return ""
	}
	since := output.Age(healthy.LastTransitionTime, f.Now)
	switch healthy.Status {
	case metav1.ConditionFalse:
		return fmt.Sprintf("%s for %s: %s", healthy.Reason, since, healthy.Message)
	case metav1.ConditionTrue:
		return fmt.Sprintf("no trouble for %s; there was some before", since)
	default:
		return "unknown: " + healthy.Message
	}
}

// Advice says what to do about the copy's trouble, or about the reason for which the job waits.
func (f Observation) Advice() string {
	if f.State() == Waiting || record.WasGivenUp(f.Dispatch) {
		reason := v1alpha1.PlacedReasonOf(jobs.Reason(f.Dispatch))
		if reason.Kind == v1alpha1.ReasonKindNoRoom && fitsNowhere(f.Dispatch.Status.Explanation) {
			return nowhereAdvice
		}
		return reason.Advice
	}
	healthy := f.healthy()
	if healthy == nil || healthy.Status != metav1.ConditionFalse {
		return ""
	}
	return cmp.Or(health.Advice(healthy.Reason, f.Job.GetName()), agentAdvice[healthy.Reason])
}

// mostWarnings is how many warnings are printed: the last ones.
const mostWarnings = 5

// warnings returns a table of the last Events of type Warning, the oldest first. It leaves out Events that say what is
// printed as the message of a lost job, as the health of the copy or as the end of an attempt.
func (f Observation) warnings() *metav1.Table {
	table := output.NewTable(output.Column{Name: "Last-Seen"}, output.Column{Name: "Reason"}, output.Column{Name: "Message"})
	events := slices.DeleteFunc(slices.Clone(f.Events), func(event corev1.Event) bool {
		return event.Type != corev1.EventTypeWarning || f.prints(event.Reason)
	})
	slices.SortFunc(events, func(a, b corev1.Event) int {
		return cmp.Or(lastSeen(&a).Compare(lastSeen(&b).Time), cmp.Compare(a.Name, b.Name))
	})
	for i := max(0, len(events)-mostWarnings); i < len(events); i++ {
		message := oneLine(events[i].Message)
		if events[i].Reason == v1alpha1.ReasonWorkerLost { // Otherwise the job would be lost, or an attempt would have ended so.
			message += "; it has answered again since"
		}
		output.Add(table, output.Age(lastSeen(&events[i]), f.Now)+" ago", events[i].Reason, message)
	}
	return table
}

// prints is true if the loss of the worker, the copy's trouble or the end of an attempt has the reason of the Event.
func (f Observation) prints(reason string) bool {
	if f.Dispatch == nil {
		return false
	}
	if reason == v1alpha1.ReasonWorkerLost && record.StateOf(f.Dispatch) == record.Lost {
		return true
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
