// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
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
	past := func(cluster v1alpha1.ClusterName, outcome v1alpha1.Outcome, ago time.Duration) v1alpha1.Attempt {
		return v1alpha1.Attempt{Cluster: cluster, Outcome: outcome, To: metav1.NewTime(now.Add(-ago)), Message: "words"}
	}
	rejected := dispatch.Exclusion{Reason: v1alpha1.ReasonRejected, Message: "words"}
	for name, test := range map[string]struct {
		reason  string
		history []v1alpha1.Attempt
		want    map[v1alpha1.ClusterName]dispatch.Exclusion
		due     time.Duration
	}{
		"Never": {reason: "nobody has refused", want: map[v1alpha1.ClusterName]dispatch.Exclusion{}},
		"Once": {
			reason: "a minute at first", history: []v1alpha1.Attempt{past("a", "Rejected", 20*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": rejected}, due: 40 * time.Second,
		},
		"Over": {
			reason: "then it is asked again", history: []v1alpha1.Attempt{past("a", "Rejected", 61*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{},
		},
		"Twice": {
			reason: "the back-off doubles", history: []v1alpha1.Attempt{past("a", "Rejected", 3*time.Minute), past("a", "Rejected", time.Minute)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{"a": rejected}, due: time.Minute,
		},
		"Several": {
			reason:  "each worker has its own, and the first to end counts",
			history: []v1alpha1.Attempt{past("a", "Rejected", 10*time.Second), past("b", "NameConflict", 30*time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{
				"a": rejected, "b": {Reason: v1alpha1.ReasonNameConflict, Message: "words"},
			},
			due: 30 * time.Second,
		},
		"NotARefusal": {
			reason: "a copy that somebody deleted says nothing against its worker", history: []v1alpha1.Attempt{past("a", "CopyDeleted", time.Second)},
			want: map[v1alpha1.ClusterName]dispatch.Exclusion{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{Status: v1alpha1.DispatchStatus{History: test.history}}
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
