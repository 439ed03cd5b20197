// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

const west = v1alpha1.ClusterName("west")

func differs(paths ...string) dispatch.Comparison {
	return dispatch.Comparison{Version: "hub.1", State: v1alpha1.RuntimeDiffers, Paths: paths}
}

// The status of a worker is what is known now. What is not compared yet stays as it was, as after a start of the manager,
// and a state keeps the time since when it is known.
func TestStatus(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1000, 0)), time.Unix(2000, 0)
	key := types.NamespacedName{Name: "torch"}
	before := []v1alpha1.WorkerRuntime{{
		Kind: "ClusterTrainingRuntime", Name: "torch", State: v1alpha1.RuntimeDiffers, Paths: []string{"spec.a"}, Since: then,
	}}
	with := func(state v1alpha1.RuntimeState, since metav1.Time, paths ...string) []v1alpha1.WorkerRuntime {
		return []v1alpha1.WorkerRuntime{{Kind: "ClusterTrainingRuntime", Name: "torch", State: state, Paths: paths, Since: since}}
	}
	compared := func(comparison dispatch.Comparison) func(*States) {
		return func(s *States) {
			s.seen(west, key, "worker.1", false)
			s.compared(west, key, comparison, asked{version: "worker.1", at: now})
		}
	}
	for name, tc := range map[string]struct {
		reason string
		known  func(*States)
		before []v1alpha1.WorkerRuntime
		want   []v1alpha1.WorkerRuntime
	}{
		"Nothing":    {reason: "the manager has just started", known: func(*States) {}, before: before, want: before},
		"Pending":    {reason: "it is being compared", known: func(s *States) { s.seen(west, key, "worker.1", false) }, before: before, want: before},
		"Equal":      {reason: "it is equal now", known: compared(dispatch.Comparison{Version: "hub.1"}), before: before},
		"New":        {reason: "since now", known: compared(differs("spec.b")), want: with(v1alpha1.RuntimeDiffers, metav1.NewTime(now), "spec.b")},
		"OtherPaths": {reason: "the state is as old as it was", known: compared(differs("spec.b")), before: before, want: with(v1alpha1.RuntimeDiffers, then, "spec.b")},
		"OtherState": {
			reason: "another state begins now", known: compared(dispatch.Comparison{Version: "hub.1", State: v1alpha1.RuntimeUnsupported}), before: before,
			want: with(v1alpha1.RuntimeUnsupported, metav1.NewTime(now)),
		},
		"Outdated": {
			reason: "the next job that needs it has it replaced",
			known:  compared(dispatch.Comparison{Version: "hub.1", State: v1alpha1.RuntimeDiffers, Outdated: true}), before: before,
		},
		"OutdatedUnsupported": {
			reason: "nobody can replace it",
			known:  compared(dispatch.Comparison{Version: "hub.1", State: v1alpha1.RuntimeUnsupported, Outdated: true}),
			want:   with(v1alpha1.RuntimeUnsupported, metav1.NewTime(now)),
		},
		"OnlyThere": {reason: "the hub has none of that name", known: compared(dispatch.Comparison{Version: onlyOnWorker}), before: before},
		"Gone": {
			reason: "the worker has it no more", before: before,
			known: func(s *States) { s.listed(west, func(types.NamespacedName) bool { return false }) },
		},
		"NewerVersion": {
			reason: "an answer about a version that has changed says nothing", before: before, want: before,
			known: func(s *States) {
				s.seen(west, key, "worker.2", false)
				s.compared(west, key, dispatch.Comparison{Version: "hub.1"}, asked{version: "worker.1", at: now})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &States{}
			tc.known(s)
			check.Diff(t, tc.want, s.Status(west, tc.before, now), tc.reason)
		})
	}
}

// A status has at most 64 runtimes, always the same ones.
func TestStatusIsBounded(t *testing.T) {
	s := &States{}
	for i := range 100 {
		key := types.NamespacedName{Namespace: "team", Name: fmt.Sprintf("r%03d", 99-i)}
		s.seen(west, key, "worker.1", false)
		s.compared(west, key, differs("spec.a"), asked{version: "worker.1", at: time.Unix(1, 0)})
	}
	status := s.Status(west, nil, time.Unix(2, 0))
	check.Equal(t, v1alpha1.MaxWorkerRuntimes, len(status), "runtimes")
	check.Equal(t, "r063", status[63].Name, "the last one, sorted")
}

// Subscribers hear of each change of what is known, and of nothing else.
func TestSubscribersHearOfChanges(t *testing.T) {
	s, heard := &States{}, 0
	cancel := s.Subscribe(func(v1alpha1.ClusterName) { heard++ })
	key := types.NamespacedName{Name: "torch"}
	s.seen(west, key, "worker.1", false)
	check.Equal(t, 1, heard, "a runtime was seen")
	s.seen(west, key, "worker.1", false)
	s.gone(west, types.NamespacedName{Name: "other"})
	check.Equal(t, 1, heard, "nothing has changed")
	s.compared(west, key, differs("spec.a"), asked{version: "worker.1"})
	check.Equal(t, 2, heard, "it was compared")
	cancel()
	s.gone(west, key)
	check.Equal(t, 2, heard, "the subscription is over")
}
