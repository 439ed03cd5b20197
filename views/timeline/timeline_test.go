// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package timeline_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/timeline"
)

// at is a time after the job was created.
func at(after time.Duration) *metav1.Time {
	t := metav1.NewTime(time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC).Add(after))
	return &t
}

func job(end string, after time.Duration) *unstructured.Unstructured {
	j := trainjobs.New()
	j.SetUID("uid")
	j.SetCreationTimestamp(*at(0))
	if end != "" {
		j.Object["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": end, "status": "True", "reason": "R", "message": "words", "lastTransitionTime": at(after).UTC().Format(time.RFC3339),
		}}}
	}
	return j
}

func placed(after time.Duration) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionTrue, LastTransitionTime: *at(after)}
}

var givenUp = metav1.Condition{Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonGivenUp}

func finished(reason string, after time.Duration) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: reason, Message: "words", LastTransitionTime: *at(after),
	}
}

func TestOf(t *testing.T) {
	second := time.Second
	tests := map[string]struct {
		reason string
		job    *unstructured.Unstructured
		spec   v1alpha1.DispatchSpec
		status v1alpha1.DispatchStatus
		want   []string
	}{
		"Waits": {reason: "a job without a worker", job: job("", 0), want: []string{"1  Waiting ..."}},
		"Placed": {
			reason: "the hub's clock says when it was placed", job: job("", 0), spec: v1alpha1.DispatchSpec{Cluster: "east", Attempt: 1},
			status: v1alpha1.DispatchStatus{Conditions: []metav1.Condition{placed(5 * second)}},
			want:   []string{"1 east Waiting 5s", "1 east Placed ..."},
		},
		"Runs": {
			reason: "all steps", job: job("", 0), spec: v1alpha1.DispatchSpec{Cluster: "east", Attempt: 1},
			status: v1alpha1.DispatchStatus{Conditions: []metav1.Condition{placed(5 * second)}, StartTime: at(6 * second), FirstRunningTime: at(9 * second)},
			want:   []string{"1 east Waiting 5s", "1 east Placed 1s", "1 east Starting 3s", "1 east Running ..."},
		},
		"Clocks": {
			reason: "the worker's clock is an hour behind, and another an hour ahead",
			job:    job("Complete", 20*second), spec: v1alpha1.DispatchSpec{Cluster: "west", Attempt: 2},
			status: v1alpha1.DispatchStatus{
				History: []v1alpha1.Attempt{{
					Attempt: 1, Cluster: "east", StartTime: at(-time.Hour), FirstRunningTime: at(4 * second), To: *at(8 * second), Outcome: "Drained", Message: "east is drained",
				}},
				Conditions: []metav1.Condition{placed(9 * second)}, StartTime: at(time.Hour), FirstRunningTime: at(12 * second),
			},
			want: []string{
				"1 east Starting 4s", "1 east Running 4s Drained: east is drained", "2 west Waiting 1s", "2 west Placed 3s", "2 west Running 8s Complete: words",
			},
		},
		"Refused": {
			reason: "an attempt that never started counts as waiting", job: job("", 0),
			status: v1alpha1.DispatchStatus{History: []v1alpha1.Attempt{{Attempt: 1, Cluster: "east", To: *at(3 * second), Outcome: "Rejected", Message: "no"}}},
			want:   []string{"1 east Waiting 3s Rejected: no", "2  Waiting ..."},
		},
		"RefusedAtOnce": {
			reason: "times have whole seconds, and each refusal stays with its attempt", job: job("", 0),
			status: v1alpha1.DispatchStatus{History: []v1alpha1.Attempt{
				{Attempt: 1, Cluster: "east", To: *at(0), Outcome: "Rejected", Message: "no"},
				{Attempt: 2, Cluster: "west", To: *at(0), Outcome: "Rejected", Message: "neither"},
			}},
			want: []string{"1 east Waiting 0s Rejected: no", "2 west Waiting 0s Rejected: neither", "3  Waiting ..."},
		},
		"Complete": {
			reason: "the last attempt is in the history, and the condition says when it was placed", job: job("Complete", 20*second),
			spec: v1alpha1.DispatchSpec{Cluster: "east", Attempt: 1},
			status: v1alpha1.DispatchStatus{
				History: []v1alpha1.Attempt{{
					Attempt: 1, Cluster: "east", StartTime: at(6 * second), FirstRunningTime: at(9 * second), To: *at(20 * second), Outcome: "Complete", Message: "words",
				}},
				Conditions: []metav1.Condition{placed(5 * second), finished("Complete", 20*second)},
			},
			want: []string{"1 east Waiting 5s", "1 east Placed 1s", "1 east Starting 3s", "1 east Running 11s Complete: words"},
		},
		"GivenUp": {
			reason: "no worker ever took it", job: job("", 0),
			status: v1alpha1.DispatchStatus{Conditions: []metav1.Condition{givenUp, finished("GivenUp", 60*second)}},
			want:   []string{"1  Waiting 1m0s Failed: words"},
		},
		"GivenUpAfterRefusal": {
			reason: "the wait for the next attempt was in vain", job: job("Failed", 60*second),
			status: v1alpha1.DispatchStatus{
				History:    []v1alpha1.Attempt{{Attempt: 1, Cluster: "east", To: *at(3 * second), Outcome: "Rejected", Message: "no"}},
				Conditions: []metav1.Condition{givenUp, finished("GivenUp", 60*second)},
			},
			want: []string{"1 east Waiting 3s Rejected: no", "2  Waiting 57s Failed: words"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.spec.TrainJob.UID = "uid"
			var got []string
			for _, span := range timeline.Of(tc.job, &v1alpha1.Dispatch{Spec: tc.spec, Status: tc.status}) {
				got = append(got, span.String())
			}
			check.Diff(t, strings.Join(tc.want, "\n"), strings.Join(got, "\n"), tc.reason)
		})
	}
	if spans := timeline.Of(job("Complete", second), nil); len(spans) != 1 || spans[0].Kind != timeline.Running {
		t.Errorf("a job that Trainyard does not dispatch has %v", spans)
	}
}
