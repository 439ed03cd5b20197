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
	"github.com/trainyard/trainyard/remote"
)

func TestExcluded(t *testing.T) {
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
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": {Reason: v1alpha1.ReasonCopyDeleted, Message: "words"}}, due: 40 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{Status: v1alpha1.DispatchStatus{Refusals: test.refusals}}
			got, due := excluded(d, now)
			if diff := cmp.Diff(test.want, got); diff != "" || due != test.due {
				t.Errorf("excluded(), due %s, want %s: %s (-want +got):\n%s", due, test.due, test.reason, diff)
			}
		})
	}
}

func TestUnbound(t *testing.T) {
	podSets := []v1alpha1.PodSet{{Name: "initializer", Count: 1}, {Name: "node", Count: 4}}
	for name, test := range map[string]struct {
		reason string
		pods   map[string]remote.GangPods
		want   []v1alpha1.PodSet
	}{
		"NothingSeen": {reason: "all is still to come", want: podSets},
		"Partly": {
			reason: "a pod counts once: as bound, or as demand",
			pods:   map[string]remote.GangPods{"initializer": {Succeeded: 1}, "node": {Bound: 1, Succeeded: 1}},
			want:   []v1alpha1.PodSet{{Name: "node", Count: 2}},
		},
		"All": {reason: "nothing is left", pods: map[string]remote.GangPods{"initializer": {Succeeded: 1}, "node": {Bound: 4}}},
		"More": {
			reason: "pods that are being replaced are more than the demand",
			pods:   map[string]remote.GangPods{"initializer": {Bound: 2}, "node": {Bound: 7}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, unbound(podSets, test.pods)); diff != "" {
				t.Errorf("unbound(): %s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestPreviousOf(t *testing.T) {
	ended := func(pairs ...string) []v1alpha1.Attempt {
		var history []v1alpha1.Attempt
		for i := 0; i < len(pairs); i += 2 {
			history = append(history, v1alpha1.Attempt{Cluster: v1alpha1.ClusterName(pairs[i]), Outcome: v1alpha1.Outcome(pairs[i+1])})
		}
		return history
	}
	for name, test := range map[string]struct {
		reason string
		status v1alpha1.DispatchStatus
		want   v1alpha1.ClusterName
	}{
		"Never":   {reason: "it has not run yet"},
		"Refused": {reason: "who refused has nothing of the job", status: v1alpha1.DispatchStatus{History: ended("a", "Rejected", "b", "NameConflict")}},
		"Deleted": {reason: "where its copy was", status: v1alpha1.DispatchStatus{History: ended("a", "CopyDeleted")}, want: "a"},
		"Last": {
			reason: "the last one where it ran", want: "b",
			status: v1alpha1.DispatchStatus{History: ended("a", "CopyDeleted", "b", "CopyDeleted", "c", "Rejected")},
		},
		"Now": {
			reason: "where its copy is", want: "c",
			status: v1alpha1.DispatchStatus{Cluster: "c", CopyUID: "uid", History: ended("a", "CopyDeleted")},
		},
		"NotYet": {
			reason: "where there is no copy yet it has not run", want: "a",
			status: v1alpha1.DispatchStatus{Cluster: "c", History: ended("a", "CopyDeleted")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := previousOf(&v1alpha1.Dispatch{Status: test.status}); got != test.want {
				t.Errorf("previousOf() = %q, want %q: %s", got, test.want, test.reason)
			}
		})
	}
}
