// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestTry: Try gives a job the answer that it would get on the waiting list, on another worker than its own. Try
// changes nothing.
func TestTry(t *testing.T) {
	small := func(minute int) made { return made{name: "tried", pods: 1, gpus: 8, minute: minute} }
	strict := func(minute int) made {
		m := small(minute)
		m.team = "strict"
		return m
	}
	// A worker is held for big, which waits for two nodes, since minute 11.
	big := made{name: "big", team: "impatient", pods: 2, gpus: 8, minute: 1}
	running := func(name, on string) made { return made{name: name, pods: 1, gpus: 8, on: on} }
	for name, tc := range map[string]struct {
		reason string
		nodes  []int
		stand  []made
		tried  made
		want   v1alpha1.ClusterExplanation
	}{
		"Fits": {
			reason: "There is room on another worker.", nodes: []int{1, 1}, stand: []made{running("x", "a")}, tried: small(0),
			want: v1alpha1.ClusterExplanation{Cluster: "b", Reason: v1alpha1.ReasonFits},
		},
		"NotItsOwn": {
			reason: "The worker that it is to leave does not count.", nodes: []int{2, 1}, stand: []made{running("x", "b")}, tried: small(0),
			want: v1alpha1.ClusterExplanation{Cluster: "b", Reason: v1alpha1.ReasonInsufficientResources},
		},
		"Alone": {
			reason: "There is no other.", nodes: []int{2}, tried: small(0),
			want: v1alpha1.ClusterExplanation{Reason: v1alpha1.ReasonNoWorkers},
		},
		"Held": {
			reason: "What is held for a job before it is not there for it.", nodes: []int{1, 2}, stand: []made{running("x", "b"), big}, tried: small(5),
			want: v1alpha1.ClusterExplanation{Cluster: "b", Reason: v1alpha1.ReasonInsufficientResources},
		},
		"HeldForALaterOne": {
			reason: "It comes before the job that it is held for.", nodes: []int{1, 2}, stand: []made{running("x", "b"), big}, tried: small(0),
			want: v1alpha1.ClusterExplanation{Cluster: "b", Reason: v1alpha1.ReasonFits},
		},
		"Strict": {
			reason: "A job of its policy waits before it.", nodes: []int{1, 2},
			stand: []made{running("x", "b"), {name: "first", team: "strict", pods: 2, gpus: 8, minute: 1}}, tried: strict(5),
			want: v1alpha1.ClusterExplanation{Reason: v1alpha1.ReasonQueued},
		},
		"StrictBeforeIt": {
			reason: "It would be the first.", nodes: []int{1, 2},
			stand: []made{running("x", "b"), {name: "first", team: "strict", pods: 2, gpus: 8, minute: 1}}, tried: strict(0),
			want: v1alpha1.ClusterExplanation{Cluster: "b", Reason: v1alpha1.ReasonFits},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, tc.nodes...)
			s.stand(tc.stand...)
			s.pass(0)
			s.pass(12)
			job := tc.tried.job()
			got := s.Try(&job, s.fleet, "a")
			if got.Message = ""; got != tc.want {
				t.Errorf("Try() = %+v, want %+v: %s", got, tc.want, tc.reason)
			}
			s.calm(t)
		})
	}
}

// TestFitsEmpty: a job that waits only for other jobs to end has hope, and keeps the quota that Kueue gave it.
func TestFitsEmpty(t *testing.T) {
	five := []made{
		{name: "r1", pods: 1, gpus: 1}, {name: "r2", pods: 1, gpus: 1}, {name: "r3", pods: 1, gpus: 1},
		{name: "r4", pods: 1, gpus: 1}, {name: "r5", pods: 1, gpus: 1},
	}
	for name, tc := range map[string]struct {
		reason string
		stand  []made
		job    made
		want   bool
	}{
		"Full":     {"The worker has room when the other has ended.", []made{{name: "x", pods: 2, gpus: 8}}, made{pods: 1, gpus: 8}, true},
		"TooLarge": {"No worker has so many nodes.", nil, made{pods: 3, gpus: 8}, false},
		"Crowded":  {"The policy's expression is true for a worker with fewer jobs.", five, made{pods: 2, gpus: 8, team: "few"}, true},
		"Packed":   {"The policy's expression needs jobs on the worker, and there are some.", five[:3], made{pods: 2, gpus: 8, team: "picky"}, true},
		"Refused":  {"The policy's expression is false now, and would be without jobs.", five, made{pods: 2, gpus: 8, team: "picky"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 2)
			s.stand(tc.stand...)
			s.pass(0)
			tc.job.name = "waiting"
			s.stand(tc.job)
			check.Equal(t, tc.want, s.FitsEmpty(key("waiting"), s.fleet), "FitsEmpty(): %s", tc.reason)
		})
	}
}

func TestExcluding(t *testing.T) {
	s := newScene(t, 1, 1)
	job := func(name string, excluded v1alpha1.ClusterName) made {
		return made{name: name, pods: 1, gpus: 1, excluded: excluded}
	}
	s.stand(job("x", "a"), job("y", "a"), job("z", "b"), job("free", ""))
	got := s.Excluding("a")
	slices.SortFunc(got, func(a, b types.NamespacedName) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	if want := []types.NamespacedName{key("x"), key("y")}; !slices.Equal(got, want) {
		t.Errorf("Excluding(a) = %v, want %v", got, want)
	}
}
