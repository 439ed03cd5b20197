// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/trace"
)

const uid = "0af76519-16cd-43dd-8448-eb211c80319c"

var created = time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC)

// at is a time some seconds after the job was created.
func at(seconds int) *metav1.Time {
	t := metav1.NewTime(created.Add(time.Duration(seconds) * time.Second))
	return &t
}

func newJob() *unstructured.Unstructured {
	j := trainjobs.New()
	j.SetName("llm")
	j.SetNamespace("default")
	j.SetUID(uid)
	j.SetCreationTimestamp(*at(0))
	return j
}

func condition(name, reason string, seconds int) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: reason, Message: "words", LastTransitionTime: *at(seconds)}
}

// on returns the record of an attempt.
func on(worker v1alpha1.ClusterName, attempt int32, change func(*v1alpha1.Dispatch)) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: worker, Attempt: attempt}}
	d.Spec.TrainJob.UID = uid
	change(d)
	return d
}

var moved = v1alpha1.Attempt{
	Attempt: 1, Cluster: "east", StartTime: at(6), FirstRunningTime: at(9), To: *at(20), Outcome: v1alpha1.OutcomeDrained, Message: "east is drained",
}

// courses are the records of a job, one after the other, and the spans that each closes.
var courses = map[string][]struct {
	record *v1alpha1.Dispatch
	closes string
}{
	"Complete": {
		{record: on("", 0, func(*v1alpha1.Dispatch) {})},
		{record: on("east", 1, func(d *v1alpha1.Dispatch) {
			d.Status.Conditions = []metav1.Condition{condition("Placed", "Placed", 5)}
		}), closes: "waiting 1 0-5"},
		{record: on("east", 1, func(d *v1alpha1.Dispatch) {
			d.Status.Conditions = []metav1.Condition{condition("Placed", "Placed", 5)}
			d.Status.StartTime, d.Status.FirstRunningTime = at(6), at(9)
		}), closes: "placed 1 5-6, starting 1 6-9"},
		{record: on("east", 1, func(d *v1alpha1.Dispatch) {
			d.Status.Conditions = []metav1.Condition{condition("Placed", "Placed", 5), condition("Finished", "Complete", 30)}
			d.Status.History = []v1alpha1.Attempt{{Attempt: 1, Cluster: "east", StartTime: at(6), FirstRunningTime: at(9), To: *at(30), Outcome: "Complete"}}
		}), closes: "trainjob 0 0-30 Complete, attempt 1 0-30 Complete, running 1 9-30"},
	},
	"Refused": {
		{record: on("east", 1, func(d *v1alpha1.Dispatch) {})},
		{record: on("east", 1, func(d *v1alpha1.Dispatch) {
			d.Status.History = []v1alpha1.Attempt{{Attempt: 1, Cluster: "east", To: *at(1), Outcome: "Rejected"}}
		}), closes: "attempt 1 0-1 Rejected, waiting 1 0-1"},
	},
	"Moved": {
		{record: on("east", 1, func(d *v1alpha1.Dispatch) {
			d.Status.Conditions = []metav1.Condition{condition("Placed", "Placed", 5)}
			d.Status.StartTime, d.Status.FirstRunningTime = at(6), at(9)
		}), closes: "waiting 1 0-5, placed 1 5-6, starting 1 6-9"},
		{record: on("east", 1, func(d *v1alpha1.Dispatch) {
			d.Spec.Eviction = &v1alpha1.Eviction{Reason: "Drained"}
			d.Status.Conditions = []metav1.Condition{condition("Placed", "Placed", 5), condition("Evicting", "Drained", 15)}
			d.Status.StartTime, d.Status.FirstRunningTime = at(6), at(9)
		})},
		{record: on("", 1, func(d *v1alpha1.Dispatch) { d.Status.History = []v1alpha1.Attempt{moved} }),
			closes: "attempt 1 0-20 Drained, evicting 1 15-20, running 1 9-20"},
		{record: on("west", 2, func(d *v1alpha1.Dispatch) {
			d.Status.History = []v1alpha1.Attempt{moved}
			d.Status.Conditions = []metav1.Condition{condition("Placed", "Placed", 25)}
		}), closes: "waiting 2 20-25"},
	},
}

func short(spans []trace.Span) string {
	var words []string
	for _, s := range spans {
		text := fmt.Sprintf("%s %d %.0f-%.0f", s.Name, s.Attempt, s.From.Sub(created).Seconds(), s.To.Sub(created).Seconds())
		words = append(words, strings.TrimSpace(text+" "+string(s.Outcome)))
	}
	return strings.Join(words, ", ")
}

// TestClosed checks which spans end with each change of the record, and that each ends once.
func TestClosed(t *testing.T) {
	for name, course := range courses {
		t.Run(name, func(t *testing.T) {
			var before *trace.Tree
			seen := map[trace.SpanID]bool{}
			for i, step := range course {
				after := trace.Of(newJob(), step.record)
				closed := after.Closed(before)
				check.Equal(t, step.closes, short(closed), "spans closed by record %d", i)
				for _, span := range closed {
					if seen[span.ID] {
						t.Errorf("%s of attempt %d is closed twice", span.Name, span.Attempt)
					}
					seen[span.ID] = true
				}
				before = after
			}
		})
	}
}

// TestTree checks parents, and that the IDs do not depend on when and by whom the trace is made.
func TestTree(t *testing.T) {
	check.Equal(t, "0af7651916cd43dd8448eb211c80319c", trace.IDOf(uid).String(), "ID of the trace")
	ids := map[trace.SpanID]string{}
	for name, course := range courses {
		for i, step := range course {
			tree := trace.Of(newJob(), step.record)
			parents := map[trace.SpanID]trace.Span{}
			for j, span := range tree.Spans {
				what := fmt.Sprintf("%s of attempt %d", span.Name, span.Attempt)
				if other, is := ids[span.ID]; is && other != what {
					t.Errorf("%s and %s have one ID", what, other)
				}
				ids[span.ID] = what
				parent, is := parents[span.Parent]
				if is == (j == 0) || is && (span.From.Before(parent.From) || !parent.Open() && span.To.After(parent.To)) {
					t.Errorf("%s %d: %s %v is not within its parent %v", name, i, what, span, parent)
				}
				parents[span.ID] = span
			}
		}
	}
}

// TestWithoutDispatch is about jobs that this cluster runs itself, and about jobs that the manager has not seen yet.
func TestWithoutDispatch(t *testing.T) {
	job := newJob()
	check.Equal(t, "trainjob", names(trace.Of(job, nil)), "a job that has not ended")
	job.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Complete", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": at(7).UTC().Format(time.RFC3339),
	}}}
	check.Equal(t, "trainjob 0 0-7 Complete", short(trace.Of(job, nil).Spans), "a job that has ended")
	managed := newJob()
	managed.Object["spec"] = map[string]any{"managedBy": v1alpha1.ManagedByMultiKueue}
	check.Equal(t, "trainjob,waiting", names(trace.Of(managed, nil)), "a job that was made now")
}

func names(t *trace.Tree) string {
	var all []string
	for _, span := range t.Spans {
		all = append(all, span.Name)
	}
	return strings.Join(all, ",")
}
