// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// script is a System that does what the test says when a job arrives.
type script struct {
	arrive func(job *stream.Job)
	freed  []int
}

func (s *script) Arrive(job *stream.Job)       { s.arrive(job) }
func (s *script) Freed(_ int, job *stream.Job) { s.freed = append(s.freed, job.ID) }
func (s *script) Decide()                      {}
func (s *script) Wake() time.Duration          { return Never }

func job(at, duration time.Duration, pods ...stream.Pods) stream.Job {
	return stream.Job{Submitted: at, Duration: duration, Pods: pods}
}

// rooms is what is free: "nodes x product GPUs/millicores", sorted.
func rooms(levels func(func(*GroupSpec, Room, int))) []string {
	counts := map[string]int{}
	levels(func(spec *GroupSpec, room Room, nodes int) {
		counts[fmt.Sprintf("%s %d/%d", spec.Product, room.GPUs, room.Millicores)] += nodes
	})
	var list []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d x %s", counts[key], key))
	}
	slices.Sort(list)
	return list
}

func spec(groups ...GroupSpec) WorkerSpec { return WorkerSpec{Name: "w", Groups: groups} }

func TestBind(t *testing.T) {
	a100 := GroupSpec{Product: "A100", Nodes: 3, GPUs: 8, Millicores: 8000}
	l4 := GroupSpec{Product: "L4", Nodes: 2, GPUs: 4, Millicores: 4000}
	for name, tc := range map[string]struct {
		reason string
		spread bool
		pods   [][]stream.Pods
		want   []string
	}{
		"BestFit": {
			reason: "the second pod goes beside the first",
			pods:   [][]stream.Pods{{{Count: 1, GPUs: 4, Products: []string{"A100"}}}, {{Count: 1, GPUs: 2, Products: []string{"A100"}}}},
			want:   []string{"1 x A100 2/8000", "2 x A100 8/8000", "2 x L4 4/4000"},
		},
		"Spread": {
			reason: "it goes to the node with the most free",
			spread: true,
			pods:   [][]stream.Pods{{{Count: 1, GPUs: 4, Products: []string{"A100"}}}, {{Count: 1, GPUs: 2, Products: []string{"A100"}}}},
			want:   []string{"1 x A100 4/8000", "1 x A100 6/8000", "1 x A100 8/8000", "2 x L4 4/4000"},
		},
		"AnyProduct": {
			reason: "the node of which least is left",
			pods:   [][]stream.Pods{{{Count: 1, GPUs: 4}}},
			want:   []string{"1 x L4 0/4000", "1 x L4 4/4000", "3 x A100 8/8000"},
		},
		"CPU": {
			reason: "GPUs are free there, but no CPU",
			pods: [][]stream.Pods{
				{{Count: 1, Millicores: 8000, Products: []string{"A100"}}}, {{Count: 1, GPUs: 1, Millicores: 1, Products: []string{"A100"}}},
			},
			want: []string{"1 x A100 7/7999", "1 x A100 8/0", "1 x A100 8/8000", "2 x L4 4/4000"},
		},
		"LargestFirst": {
			reason: "the pod of 8 GPUs gets a whole node although it comes second",
			pods:   [][]stream.Pods{{{Count: 3, GPUs: 4, Products: []string{"A100"}}, {Count: 1, GPUs: 8, Products: []string{"A100"}}}},
			want:   []string{"1 x A100 4/8000", "2 x A100 0/8000", "2 x L4 4/4000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(spec(a100, l4))
			for i := range tc.pods {
				j := job(0, 0, tc.pods[i]...)
				if !w.Fits(&j) {
					t.Fatalf("job %d does not fit", i)
				}
				if !w.bind(newRun(&j, 0), tc.spread) {
					t.Fatalf("job %d fits, but its pods have no nodes", i)
				}
			}
			check.Diff(t, tc.want, rooms(w.Levels), fmt.Sprintf("%s: what is free", tc.reason))
		})
	}
}

// TestFitsChangesNothing: asking whether pods of two kinds fit binds none of them.
func TestFitsChangesNothing(t *testing.T) {
	w := newWorker(spec(GroupSpec{Product: "A100", Nodes: 2, GPUs: 8, Millicores: 8000}))
	before := rooms(w.Levels)
	for gpus, want := range map[int]bool{4: true, 9: false} {
		j := job(0, 0, stream.Pods{Count: 2, GPUs: 4}, stream.Pods{Count: 1, GPUs: gpus})
		check.Equal(t, want, w.Fits(&j), "a gang with a pod of %d GPUs: fits", gpus)
	}
	if diff := cmp.Diff(before, rooms(w.Levels)); diff != "" {
		t.Error(diff)
	}
}

// TestFitsNeedsAll: GPUs and CPU count, on each node by itself.
func TestFitsNeedsAll(t *testing.T) {
	w := newWorker(spec(GroupSpec{Product: "A100", Nodes: 2, GPUs: 8, Millicores: 8000}))
	for name, tc := range map[string]struct {
		pods stream.Pods
		want bool
	}{
		"All":        {pods: stream.Pods{Count: 4, GPUs: 4, Millicores: 4000}, want: true},
		"NoMoreGPUs": {pods: stream.Pods{Count: 5, GPUs: 4}},
		"ByNode":     {pods: stream.Pods{Count: 3, GPUs: 5}},
		"CPU":        {pods: stream.Pods{Count: 3, GPUs: 1, Millicores: 4001}},
		"OtherGPUs":  {pods: stream.Pods{Count: 1, GPUs: 1, Products: []string{"L4"}}},
	} {
		if j := job(0, 0, tc.pods); w.Fits(&j) != tc.want {
			t.Errorf("%s: Fits is %v", name, !tc.want)
		}
	}
}

// TestFragments: GPUs count as fragments while others of their node are in use.
func TestFragments(t *testing.T) {
	jobs := []stream.Job{job(0, 10*time.Second, stream.Pods{Count: 1, GPUs: 3}), job(0, 30*time.Second, stream.Pods{Count: 1, GPUs: 5})}
	stream.Sort(jobs)
	w := New([]WorkerSpec{spec(GroupSpec{Product: "A100", Nodes: 2, GPUs: 8, Millicores: 1})}, jobs,
		Options{Window: Span{To: 40 * time.Second}})
	s := &script{}
	s.arrive = func(job *stream.Job) { w.Place(job, 0) }
	w.Run(s)
	// Both jobs are on one node, which is full until 10 and has 3 free until 30. The end of the last job ends the time.
	want := Usage{Available: 16 * 30, Running: 3*10 + 5*30, Free: 8*10 + 11*20, Partial: 3 * 20}
	check.Diff(t, want, w.Result().Usage, "usage")
}

// TestPending: a gang that has some of its nodes holds them, and gets the rest before a later gang.
func TestPending(t *testing.T) {
	eight := func(count int) stream.Pods { return stream.Pods{Count: count, GPUs: 8} }
	jobs := []stream.Job{
		job(0, 100*time.Second, eight(1)), job(0, 40*time.Second, eight(1)), job(10*time.Second, 100*time.Second, eight(2)),
		job(20*time.Second, 10*time.Second, eight(1)),
	}
	stream.Sort(jobs)
	w := New([]WorkerSpec{spec(GroupSpec{Product: "A100", Nodes: 2, GPUs: 8, Millicores: 1})}, jobs,
		Options{Window: Span{From: 5 * time.Second, To: 50 * time.Second}})
	s := &script{}
	s.arrive = func(job *stream.Job) { w.Place(job, 0) }
	w.Run(s)
	// At 40 one node is free: the third job takes it and waits for the other until 100, and the last runs after it.
	var ends []int
	for _, r := range w.Result().Records {
		ends = append(ends, int(r.Ended.Seconds()))
	}
	check.Diff(t, []int{100, 40, 200, 210}, ends, "when jobs ended")
	want := Usage{Available: 16 * 45, Running: 8*35 + 8*45, Held: 8 * 10}
	check.Diff(t, want, w.Result().Usage, "usage from 5 to 50 s")
	if got := w.Result().Records[2].Pending; got != 90*time.Second {
		t.Errorf("the third job waited %v for its nodes, want 90 s", got)
	}
}

// TestEvict: a job keeps its nodes for the grace. A job that ends by itself in that time is not stopped.
func TestEvict(t *testing.T) {
	one := stream.Pods{Count: 1, GPUs: 8}
	jobs := []stream.Job{job(0, 100*time.Second, one), job(0, 30*time.Second, one), job(20*time.Second, time.Second, one)}
	stream.Sort(jobs)
	w := New([]WorkerSpec{spec(GroupSpec{Product: "A100", Nodes: 3, GPUs: 8, Millicores: 1})}, jobs,
		Options{Grace: 15 * time.Second, Checkpoint: 20 * time.Second})
	s := &script{}
	s.arrive = func(job *stream.Job) {
		w.Place(job, 0)
		if job.ID == 2 {
			w.Evict(&jobs[0])
			w.Evict(&jobs[1])
			w.Evict(&jobs[1])
		}
	}
	w.Run(s)
	records := w.Result().Records
	// The first job is stopped at 35, has 20 s in its checkpoint, and begins the other 80 s at once.
	first, second := records[0], records[1]
	if first.Ended != 115*time.Second || first.Lost != 15*time.Second || first.Evictions != 1 || first.Wait() != 0 {
		t.Errorf("the first job is %+v", first)
	}
	if second.Ended != 30*time.Second || second.Evictions != 0 {
		t.Errorf("the second job is %+v", second)
	}
	check.Diff(t, []int{2, 1, 0, 0}, s.freed, "who has left a worker")
}

// TestLevelsWithout: LevelsWithout equals Levels after the jobs are gone.
func TestLevelsWithout(t *testing.T) {
	pods := stream.Pods{Count: 3, GPUs: 2, Millicores: 100}
	jobs := []stream.Job{job(0, time.Hour, pods), job(0, time.Hour, pods), job(0, time.Hour, pods)}
	stream.Sort(jobs)
	groups := spec(GroupSpec{Product: "A100", Nodes: 3, GPUs: 8, Millicores: 1000})
	left := func(ids ...int) []string {
		w := New([]WorkerSpec{groups}, jobs, Options{Spread: true})
		for i := range jobs {
			w.Place(&jobs[i], 0)
		}
		for _, id := range ids {
			w.stop(w.runs[id], &w.records[id])
		}
		return rooms(w.workers[0].Levels)
	}
	w := New([]WorkerSpec{groups}, jobs, Options{Spread: true})
	for i := range jobs {
		w.Place(&jobs[i], 0)
	}
	for _, ids := range [][]int{{}, {1}, {0, 2}, {0, 1, 2}} {
		got := rooms(func(visit func(*GroupSpec, Room, int)) { w.LevelsWithout(0, ids, visit) })
		check.Diff(t, left(ids...), got, fmt.Sprintf("without %v", ids))
	}
}
