// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/simulation/internal/peers"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
	"github.com/trainyard/trainyard/test/simulation/internal/yard"
)

// system is a row of the comparison.
type system struct {
	// name on the command line, and title in tables.
	name, title string
	make        func(w *world.World, seed uint64, o *options) world.System
}

// forever is a reserveAfter that does not come.
const forever = 100 * 365 * 24 * time.Hour

// systems are all rows, in the order of the tables.
var systems = []system{
	ours("most-allocated", "Trainyard MostAllocated", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring = scoring(v1alpha1.ScoreMostAllocated)
	}),
	ours("least-allocated", "Trainyard LeastAllocated", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring = scoring(v1alpha1.ScoreLeastAllocated)
	}),
	ours("no-reservation", "Trainyard no reservation", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring, p.ReserveAfter = scoring(v1alpha1.ScoreMostAllocated), &metav1.Duration{Duration: forever}
	}),
	ours("strict", "Trainyard StrictFIFO", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring, p.Queueing = scoring(v1alpha1.ScoreMostAllocated), v1alpha1.StrictFIFO
	}),
	ours("preemption", "Trainyard preemption", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring, p.Preemption = scoring(v1alpha1.ScoreMostAllocated), v1alpha1.PreemptLowerPriority
	}),
	{name: "random", title: "random feasible", make: func(w *world.World, seed uint64, _ *options) world.System {
		return peers.NewRandom(w, seed)
	}},
	kueue("multikueue", "MultiKueue all at once", 0),
	kueue("multikueue-incremental", "MultiKueue incremental", peers.IncrementalStep),
}

func scoring(name v1alpha1.ScoreName) []v1alpha1.Score {
	return []v1alpha1.Score{{Name: name, Weight: 1}}
}

func ours(name, title string, change func(*v1alpha1.DispatchPolicySpec)) system {
	return system{name: name, title: title, make: func(w *world.World, _ uint64, o *options) world.System {
		policy := v1alpha1.DispatchPolicySpec{ReserveAfter: &metav1.Duration{Duration: o.reserveAfter}}
		change(&policy)
		return yard.New(w, policy, time.Now)
	}}
}

func kueue(name, title string, step int) system {
	return system{name: name, title: title, make: func(w *world.World, seed uint64, o *options) world.System {
		return peers.MultiKueue{Step: step, Rate: o.kueueRate}.New(w, seed)
	}}
}

func systemNames() []string {
	var names []string
	for _, s := range systems {
		names = append(names, s.name)
	}
	return names
}

// selectSystems returns the requested systems, in the order of the tables.
func selectSystems(names []string) ([]system, error) {
	for _, name := range names {
		if name != "all" && !slices.Contains(systemNames(), name) {
			return nil, fmt.Errorf("--systems has %q, but there are all, %s", name, strings.Join(systemNames(), ", "))
		}
	}
	var selected []system
	for _, s := range systems {
		if slices.Contains(names, "all") || slices.Contains(names, s.name) {
			selected = append(selected, s)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("--systems is empty")
	}
	return selected, nil
}
