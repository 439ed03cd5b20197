// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/scenario"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

const product = "A100"

// job of pods that each take some GPUs.
func job(at, duration, pods, gpus int) stream.Job {
	return stream.Job{
		Submitted: time.Duration(at) * time.Second, Duration: time.Duration(duration) * time.Second,
		Pods: []stream.Pods{{Count: pods, GPUs: gpus, Products: []string{product}}},
	}
}

func urgent(j stream.Job) stream.Job {
	j.Priority = 100
	return j
}

// uniform is workers with nodes that are alike.
func uniform(workers, nodes, gpus int) []world.WorkerSpec {
	specs := make([]world.WorkerSpec, workers)
	for i := range specs {
		specs[i] = world.WorkerSpec{
			Name:   fmt.Sprint("worker-", i),
			Groups: []world.GroupSpec{{Product: product, Nodes: nodes, GPUs: gpus, Millicores: 1000}},
		}
	}
	return specs
}

// begins is when each job began to run for the last time, in seconds, if it was stopped at most once. -1: it has not
// ended.
func begins(records []world.Record) []int {
	var at []int
	for i := range records {
		r := &records[i]
		if !r.Done {
			at = append(at, -1)
			continue
		}
		at = append(at, int((r.Ended-r.Job.Duration)/time.Second))
	}
	return at
}

// TestTiny has cases that are worked out by hand, for each system.
func TestTiny(t *testing.T) {
	// Pods are spread, so the first two jobs leave two GPUs on each of two nodes.
	fragments := []stream.Job{job(0, 100, 1, 2), job(1, 100, 1, 2), job(2, 50, 1, 4), job(3, 10, 1, 2)}
	four := []stream.Job{job(0, 1000, 1, 4), job(1, 1000, 1, 4), job(2, 1000, 1, 4), job(3, 1000, 1, 4)}
	contenders := []stream.Job{job(0, 100, 1, 4), urgent(job(10, 50, 1, 4))}

	for name, tc := range map[string]struct {
		reason string
		system string
		fleet  []world.WorkerSpec
		jobs   []stream.Job
		change func(*options)
		want   []int
	}{
		"Fragments/BestEffort": {
			reason: "the third job has no node until the first has ended, and the fourth passes it",
			system: "most-allocated", fleet: uniform(1, 2, 4), jobs: fragments, want: []int{0, 1, 100, 3},
		},
		"Fragments/Strict": {
			reason: "nobody passes the third job",
			system: "strict", fleet: uniform(1, 2, 4), jobs: fragments, want: []int{0, 1, 100, 100},
		},
		"Fragments/Random": {
			reason: "it goes by nodes, and lets small jobs pass",
			system: "random", fleet: uniform(1, 2, 4), jobs: fragments, want: []int{0, 1, 100, 3},
		},
		"Fragments/MultiKueue": {
			reason: "the third job is admitted because four GPUs are free in sum; it waits for its node, and the fourth for its quota",
			system: "multikueue", fleet: uniform(1, 2, 4), jobs: fragments, want: []int{0, 1, 100, 100},
		},
		"Four/MultiKueue": {
			reason: "there is a worker for each job",
			system: "multikueue", fleet: uniform(4, 1, 4), jobs: four, want: []int{0, 1, 2, 3},
		},
		"Four/Incremental": {
			reason: "the first three workers are full when the fourth job comes, and the next are nominated after five minutes",
			system: "multikueue-incremental", fleet: uniform(4, 1, 4), jobs: four, want: []int{0, 1, 2, 303},
		},
		"Four/Rate": {
			reason: "one job in ten seconds is dispatched",
			system: "multikueue", fleet: uniform(4, 1, 4), jobs: four, want: []int{10, 20, 30, 40},
			change: func(o *options) { o.kueueRate = 0.1 },
		},
		"Preemption": {
			reason: "the first job is stopped, has its grace of 30 s, and begins again after the second, which took 50 s",
			system: "preemption", fleet: uniform(1, 1, 4), jobs: contenders, want: []int{90, 40},
			change: func(o *options) { o.checkpoint = 0 },
		},
		"Checkpoint": {
			reason: "the first job has run for 40 s and keeps 30 of them: it is over 70 s after it begins again at 90",
			system: "preemption", fleet: uniform(1, 1, 4), jobs: contenders, want: []int{60, 40},
			change: func(o *options) { o.checkpoint = 30 * time.Second },
		},
		"NoPreemption": {
			reason: "the default stops nobody",
			system: "most-allocated", fleet: uniform(1, 1, 4), jobs: contenders, want: []int{0, 100},
		},
		"Gang": {
			reason: "two nodes of one worker are needed, and one node on each of two will not do",
			system: "least-allocated", fleet: uniform(2, 2, 4),
			jobs: []stream.Job{job(0, 100, 1, 4), job(1, 200, 1, 4), job(2, 10, 2, 4)}, want: []int{0, 1, 100},
		},
		"NeverFits": {
			reason: "a job that no worker has room for never runs, and the simulation ends nevertheless",
			system: "most-allocated", fleet: uniform(2, 1, 4), jobs: []stream.Job{job(0, 10, 2, 4)}, want: []int{-1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			if tc.change != nil {
				tc.change(&o)
			}
			stream.Sort(tc.jobs)
			w := world.New(tc.fleet, tc.jobs, world.Options{Spread: true, Grace: o.grace, Checkpoint: o.checkpoint})
			w.Run(find(t, tc.system).make(w, 1, &o))
			check.Diff(t, tc.want, begins(w.Result().Records), fmt.Sprintf("%s: when jobs began", tc.reason))
		})
	}
}

func find(t *testing.T, name string) system {
	t.Helper()
	found, err := selectSystems([]string{name})
	check.Must(t, err)
	return found[0]
}

// busy is a small fleet with more work than it can do, of several products, sizes and priorities.
func busy(t *testing.T, seed uint64) ([]world.WorkerSpec, []stream.Job) {
	t.Helper()
	duration := stream.Lognormal{Median: metav1.Duration{Duration: 20 * time.Minute}, Sigma: 1}
	s := scenario.Scenario{
		Fleet: []scenario.Workers{
			{Name: "a", Count: 3, Groups: []world.GroupSpec{{Product: "A100", Nodes: 4, GPUs: 8, Millicores: 96000}}},
			{Name: "b", Count: 2, Groups: []world.GroupSpec{
				{Product: "A100", Nodes: 2, GPUs: 8, Millicores: 48000}, {Product: "L4", Nodes: 5, GPUs: 4, Millicores: 48000},
			}},
		},
		Jobs: stream.Spec{
			Classes: []stream.Class{
				{Name: "1", Share: 5, Nodes: 1, GPUs: 1, Duration: duration},
				{Name: "3", Share: 3, Nodes: 1, GPUs: 3, Duration: duration},
				{Name: "2x2", Share: 2, Nodes: 2, GPUs: 2, Duration: duration},
				{Name: "2x8", Share: 1, Nodes: 2, GPUs: 8, Products: []string{"A100"}, Duration: duration},
			},
			Priorities: []stream.Priority{{Share: 4, Value: 0}, {Share: 1, Value: 10}},
		},
	}
	jobs, err := s.Jobs.Generate(seed, s.Pools(), 1.1, 6*time.Hour)
	check.Must(t, err)
	for i := range jobs { // Some have pods of two kinds, and some take any product.
		switch {
		case i%10 == 0:
			jobs[i].Pods = append(jobs[i].Pods, stream.Pods{Count: 1, Millicores: 2000})
		case i%10 == 5 && jobs[i].Name == "1":
			jobs[i].Pods[0].Products = nil
		}
	}
	return s.Workers(), jobs
}

// audited looks at all workers after each decision.
type audited struct {
	world.System
	t     *testing.T
	world *world.World
	sizes []map[string]int // GPUs by product, per worker.
}

func (a *audited) Decide() {
	a.System.Decide()
	for i, w := range a.world.Workers() {
		nodes, free := map[string]int{}, 0
		w.Levels(func(spec *world.GroupSpec, room world.Room, count int) {
			nodes[spec.Product] += count
			free += count * room.GPUs
			if count < 1 || room.GPUs < 0 || room.GPUs > spec.GPUs || room.Millicores < 0 || room.Millicores > spec.Millicores {
				a.t.Fatalf("%s has %d nodes of %+v with %+v free", w.Name, count, spec, room)
			}
		})
		if free != w.Free() {
			a.t.Fatalf("%s: %d GPUs are free by node, and %d in sum", w.Name, free, w.Free())
		}
		if !maps.Equal(nodes, a.sizes[i]) {
			a.t.Fatalf("%s has nodes %v, but had %v", w.Name, nodes, a.sizes[i])
		}
	}
}

func audit(t *testing.T, w *world.World, s world.System) *audited {
	a := &audited{System: s, t: t, world: w}
	for _, worker := range w.Workers() {
		nodes := map[string]int{}
		worker.Levels(func(spec *world.GroupSpec, _ world.Room, count int) { nodes[spec.Product] += count })
		a.sizes = append(a.sizes, nodes)
	}
	return a
}

// TestConservation runs each system on a fleet that is too small: no node is ever over-filled, every job ends,
// everything is free afterwards, and the GPU time of the fleet in which jobs ran equals the GPU time of the jobs.
func TestConservation(t *testing.T) {
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			specs, jobs := busy(t, 7)
			o := defaultOptions()
			w := world.New(specs, jobs, world.Options{Window: world.Span{To: 1000 * time.Hour}, Grace: o.grace, Checkpoint: o.checkpoint})
			w.Run(audit(t, w, s.make(w, 7, &o)))

			result := w.Result()
			var ran float64
			evictions := 0
			for i := range result.Records {
				r := &result.Records[i]
				if !r.Done {
					t.Fatalf("job %d never ended", i)
				}
				if got := r.Ran - r.Lost; got != r.Job.Duration {
					t.Errorf("job %d ran for %v without what it lost, but its duration is %v", i, got, r.Job.Duration)
				}
				if r.Wait() < 0 || r.Pending > r.Wait() {
					t.Errorf("job %d waited %v, of these %v on a worker", i, r.Wait(), r.Pending)
				}
				ran += r.Ran.Seconds() * float64(r.Job.GPUs())
				evictions += r.Evictions
			}
			if diff := result.Usage.Running - ran; diff > 1 || diff < -1 {
				t.Errorf("GPUs ran jobs for %.0f GPU seconds, but jobs ran for %.0f", result.Usage.Running, ran)
			}
			u := result.Usage
			if diff := u.Available - u.Running - u.Held - u.Free; diff > 1 || diff < -1 {
				t.Errorf("%.0f GPU seconds are neither running nor held nor free", diff)
			}
			if u.Partial > u.Free {
				t.Errorf("more is free on partly used nodes (%.0f) than at all (%.0f)", u.Partial, u.Free)
			}
			if preempts := s.name == "preemption"; (evictions > 0) != preempts {
				t.Errorf("%d jobs were stopped", evictions)
			}
			if bySum := strings.HasPrefix(s.name, "multikueue"); (u.Held > 0) != bySum {
				t.Errorf("gangs held %.0f GPU seconds while they waited for nodes", u.Held)
			}
			for i, worker := range w.Workers() {
				if all := world.New(specs, nil, world.Options{}).Workers()[i].Free(); worker.Free() != all {
					t.Errorf("%s has %d of %d GPUs free in the end", worker.Name, worker.Free(), all)
				}
			}
		})
	}
}

// TestDeterminism: the same seed gives the same result, and another seed gives another result.
func TestDeterminism(t *testing.T) {
	o := defaultOptions()
	simulate := func(s system, seed uint64) []string {
		specs, jobs := busy(t, seed)
		w := world.New(specs, jobs, world.Options{Grace: o.grace})
		w.Run(s.make(w, seed, &o))
		var ends []string
		for _, r := range w.Result().Records {
			ends = append(ends, fmt.Sprint(r.Ended, " on ", r.Worker))
		}
		return ends
	}
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			first := simulate(s, 1)
			check.Diff(t, first, simulate(s, 1), "the same seed gives another result")
			if slices.Equal(first, simulate(s, 2)) {
				t.Error("another seed gives the same result")
			}
		})
	}
}
