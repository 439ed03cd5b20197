// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

func TestExclusions(t *testing.T) {
	now := time.Unix(10_000, 0)
	past := func(cluster v1alpha1.ClusterName, outcome v1alpha1.Outcome, count int32, ago time.Duration) v1alpha1.Refusal {
		return v1alpha1.Refusal{Cluster: cluster, Outcome: outcome, Count: count, Last: metav1.NewTime(now.Add(-ago)), Message: "words"}
	}
	rejected := dispatch.Exclusion{Reason: v1alpha1.ReasonRejected, Message: "words"}
	many := make([]v1alpha1.Refusal, 40)
	all := map[v1alpha1.ClusterName]dispatch.Exclusion{}
	for i := range many {
		many[i] = past(v1alpha1.ClusterName(fmt.Sprint("worker-", i)), "Rejected", 1, 10*time.Second)
		all[many[i].Cluster] = rejected
	}
	for name, test := range map[string]struct {
		reason   string
		refusals []v1alpha1.Refusal
		asked    string
		want     map[v1alpha1.ClusterName]dispatch.Exclusion
		due      time.Duration
	}{
		"Never": {reason: "nobody has refused", want: map[v1alpha1.ClusterName]dispatch.Exclusion{}},
		"Once": {
			reason: "a minute at first", refusals: []v1alpha1.Refusal{past("a", "Rejected", 1, 20*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": rejected}, due: 40 * time.Second,
		},
		"Over": {
			reason: "then it is asked again", refusals: []v1alpha1.Refusal{past("a", "Rejected", 1, 61*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{},
		},
		"Thrice": {
			reason: "the back-off doubles", refusals: []v1alpha1.Refusal{past("a", "Rejected", 3, time.Minute)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": rejected}, due: 3 * time.Minute,
		},
		"Often": {
			reason: "up to half an hour", refusals: []v1alpha1.Refusal{past("a", "Rejected", 1000, time.Minute)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": rejected}, due: 29 * time.Minute,
		},
		"Several": {
			reason:   "each worker has its own, and the first to end counts",
			refusals: []v1alpha1.Refusal{past("a", "Rejected", 1, 10*time.Second), past("b", "NameConflict", 1, 30*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{
				"a": rejected, "b": {Reason: v1alpha1.ReasonNameConflict, Message: "words"},
			},
			due: 30 * time.Second,
		},
		"Fleet": {reason: "more workers than the history has places", refusals: many, want: all, due: 50 * time.Second},
		"DeletedOnce": {
			reason: "a copy that somebody deleted says nothing against its worker", refusals: []v1alpha1.Refusal{past("a", "CopyDeleted", 1, time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{},
		},
		"DeletedAgain": {
			reason: "one that deletes each copy is left alone for a while", refusals: []v1alpha1.Refusal{past("a", "CopyDeleted", 2, 20*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": {Reason: string(v1alpha1.OutcomeCopyDeleted), Message: "words"}}, due: 40 * time.Second,
		},
		"RuntimeChanged": {
			reason: "an admin who has changed a runtime says nothing against the worker", refusals: []v1alpha1.Refusal{past("a", "RuntimeChanged", 1, time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{},
		},
		"RuntimeChangedAgain": {
			reason: "one that changes its runtime for each job keeps none of them busy", refusals: []v1alpha1.Refusal{past("a", "RuntimeChanged", 2, 20*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": {Reason: string(v1alpha1.OutcomeRuntimeChanged), Message: "words"}}, due: 40 * time.Second,
		},
		"TimedOut": {
			reason: "a worker that does not let the copy run refuses it too", refusals: []v1alpha1.Refusal{past("a", "AdmissionTimeout", 1, 20*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": {Reason: string(v1alpha1.OutcomeAdmissionTimeout), Message: "words"}}, due: 40 * time.Second,
		},
		"TimedOutInDomain": {
			reason: "the worker's other domains may let it run",
			refusals: []v1alpha1.Refusal{func() v1alpha1.Refusal {
				refusal := past("a", "AdmissionTimeout", 1, 20*time.Second)
				refusal.Domain = &v1alpha1.Domain{Label: "rack", Value: "r1"}
				return refusal
			}()},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": {
				Reason: string(v1alpha1.OutcomeAdmissionTimeout), Message: "words", Domain: v1alpha1.Domain{Label: "rack", Value: "r1"},
			}},
			due: 40 * time.Second,
		},
		"AsBefore": {
			reason: "nothing has changed since it was asked", refusals: []v1alpha1.Refusal{past("a", "Rejected", 1, 20*time.Second)},
			asked: "a=now-a", want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": rejected}, due: 40 * time.Second,
		},
		"Changed": {
			reason:   "a refusal of something else is void, and only that",
			refusals: []v1alpha1.Refusal{past("a", "Rejected", 9, time.Second), past("b", "Rejected", 1, 20*time.Second)},
			asked:    "a=then-a,b=now-b",
			want:     map[v1alpha1.ClusterName]dispatch.Exclusion{"b": rejected}, due: 40 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{Status: v1alpha1.DispatchStatus{Refusals: test.refusals}}
			d.Annotations = map[string]string{annotationAsked: test.asked}
			got, due := exclusions(d, now, func(worker v1alpha1.ClusterName) string { return "now-" + string(worker) })
			if diff := cmp.Diff(test.want, got); diff != "" || due != test.due {
				t.Errorf("exclusions(), due %s, want %s: %s (-want +got):\n%s", due, test.due, test.reason, diff)
			}
		})
	}
}

// The note about a worker that refused stays as long as the refusal. When a worker is asked again, its note is
// replaced.
func TestNoteAsked(t *testing.T) {
	d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "b"}}
	for _, test := range []struct {
		reason   string
		worker   v1alpha1.ClusterName
		refusals []v1alpha1.ClusterName
		want     string
	}{
		{reason: "the first", worker: "b", want: "b=1"},
		{reason: "it has refused", worker: "a", refusals: []v1alpha1.ClusterName{"b"}, want: "a=2,b=1"},
		{reason: "both have", worker: "b", refusals: []v1alpha1.ClusterName{"b", "a"}, want: "a=2,b=3"},
		{reason: "who ran it without a refusal is forgotten", worker: "c", refusals: []v1alpha1.ClusterName{"a"}, want: "a=2,c=4"},
	} {
		d.Spec.Cluster, d.Status.Refusals = test.worker, nil
		for _, worker := range test.refusals {
			d.Status.Refusals = append(d.Status.Refusals, v1alpha1.Refusal{Cluster: worker})
		}
		d.Spec.Attempt++
		noteAsked(d, fmt.Sprint(d.Spec.Attempt))
		if got := d.Annotations[annotationAsked]; got != test.want {
			t.Errorf("noted is %q, want %q: %s", got, test.want, test.reason)
		}
	}
}
