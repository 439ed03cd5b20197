// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

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
	cancel := s.Subscribe(func(v1alpha1.ClusterName, []types.NamespacedName) { heard++ })
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

func withOwn(digest string, size int) dispatch.Comparison {
	return dispatch.Comparison{
		Version: "hub.1", State: v1alpha1.RuntimeDiffers, Demand: true, Own: &dispatch.RuntimeSpec{Digest: digest, JSON: make([]byte, size)},
	}
}

// Own has the workers whose runtime may make other pods, and is the same until that changes. Subscribers learn of which
// runtimes. While a new version of a runtime is being compared, the version before counts.
func TestOwnRuntimes(t *testing.T) {
	const east = v1alpha1.ClusterName("east")
	s, key, other := &States{}, types.NamespacedName{Name: "torch"}, types.NamespacedName{Name: "other"}
	var told []string
	defer s.Subscribe(func(worker v1alpha1.ClusterName, own []types.NamespacedName) {
		for _, runtime := range own {
			told = append(told, fmt.Sprint(worker, " ", runtime.Name))
		}
	})()
	expect := func(what string, want ...string) {
		t.Helper()
		check.Diff(t, want, told, "what subscribers were told when "+what)
		told = nil
	}
	compare := func(worker v1alpha1.ClusterName, version string, comparison dispatch.Comparison) {
		s.seen(worker, key, version, false)
		s.compared(worker, key, comparison, asked{version: version})
	}
	compare(west, "worker.1", differs("spec.image"))
	if s.Own(key) != nil {
		t.Error("a runtime that makes the same pods is kept")
	}
	expect("only the image differs")
	compare(west, "worker.2", withOwn("a", 10))
	compare(east, "worker.1", withOwn("a", 10))
	expect("two workers have other pods", "west torch", "east torch")
	own := s.Own(key)
	check.Equal(t, 2, len(own.On), "workers with own runtimes")
	if own.On[west].Own != own.On[east].Own {
		t.Error("workers with equal runtimes do not share the spec")
	}
	s.seen(west, other, "worker.1", false)
	s.compared(west, other, dispatch.Comparison{Version: "hub.1"}, asked{version: "worker.1"})
	if s.Own(key) != own || s.Own(other) != nil {
		t.Error("a change of something else changes the answer")
	}
	expect("another runtime is equal")
	s.seen(west, key, "worker.3", false)
	known, _ := s.Of(west).Of(key)
	if known.Version != "" || digestOf(known.Own) != "a" || s.Own(key) != own {
		t.Errorf("while the new version is being compared, %+v is known", known)
	}
	expect("a new version is being compared")
	s.compared(west, key, dispatch.Comparison{Version: "hub.1"}, asked{version: "worker.3"})
	expect("it is equal", "west torch")
	check.Equal(t, 1, len(s.Own(key).On), "workers with own runtimes")
	check.Equal(t, 2, len(own.On), "workers in what was returned before")
	outdated := withOwn("b", 10)
	outdated.Outdated = true
	compare(west, "worker.4", outdated)
	s.seen(west, key, "worker.5", false)
	if known := s.Own(key).On[west]; !known.Outdated || digestOf(known.Own) != "b" {
		t.Errorf("while the hub's comes in the place of an earlier version, %+v is known", known)
	}
	s.gone(west, key)
	s.Forget(east)
	if s.Own(key) != nil {
		t.Error("the runtime of a worker that is gone is kept")
	}
}

// The specs of one worker are bounded together. Beyond that the words say what is assumed. What goes makes room.
func TestSpecsAreBounded(t *testing.T) {
	s := &States{}
	put := func(i int) (types.NamespacedName, dispatch.Comparison) {
		key := types.NamespacedName{Namespace: "team", Name: fmt.Sprintf("r%03d", i)}
		s.seen(west, key, "worker.1", false)
		s.compared(west, key, withOwn(fmt.Sprint(i), maxSpec), asked{version: "worker.1"})
		known, _ := s.Of(west).Of(key)
		return key, known
	}
	const most = maxSpecs / maxSpec
	for i := range most {
		if _, known := put(i); known.Own == nil {
			t.Fatalf("runtime %d is not kept: %s", i, known.Assumed)
		}
	}
	key, known := put(most)
	if known.Own != nil || known.Assumed == "" || s.Own(key) != nil {
		t.Errorf("beyond the bound, %+v is known", known)
	}
	s.gone(west, types.NamespacedName{Namespace: "team", Name: "r003"})
	if _, known := put(most + 1); known.Own == nil {
		t.Errorf("where there is room again, a runtime is not kept: %s", known.Assumed)
	}
}

// A worker that changes a runtime for ever is asked about it less and less often, and about its other runtimes as before.
func TestQuestionsAreSpaced(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	r := &Reconciler{Options: Options{Clock: clock}}
	changes, other := types.NamespacedName{Name: "changes"}, types.NamespacedName{Name: "other"}
	asked := 0
	for range 600 { // Ten changes a second.
		if r.due(changes) == 0 {
			asked++
		}
		clock.Step(100 * time.Millisecond)
	}
	if asked < 10 || asked > 20 {
		t.Errorf("asked %d times in a minute, want some quick questions and then fewer", asked)
	}
	check.Equal(t, time.Duration(0), r.due(other), "how long a question about another runtime waits")
	clock.Step(time.Hour)
	check.Equal(t, time.Duration(0), r.due(changes), "how long a question after an hour waits")
}
