// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/check"
)

// yard is a full fleet with a long waiting list: jobs of 300 classes, of 1 to 16 pods with 1 to 8 GPUs each, half of
// them of one GPU, in three priorities.
type yard struct {
	*fleet
	*queue.Queue
	*rand.Rand
	demands [][]v1alpha1.PodSet
	running []types.UID
	now     time.Time
	born    int
}

func newYard(b *testing.B, workers, waiting int) *yard {
	y := &yard{fleet: newFleet(b), Queue: queue.New(), Rand: rand.New(rand.NewPCG(1, 2)), now: start}
	for i := range workers {
		y.add(v1alpha1.ClusterName(fmt.Sprintf("worker-%04d", i)), 64)
	}
	for cpus := range int64(5) {
		for _, gpus := range []int64{1, 2, 4, 8} {
			for _, pods := range []int32{1, 2, 4, 8, 16} {
				y.demands = append(y.demands, podSets(pods, gpus, (4+cpus)*gpus/2, "", false))
			}
		}
	}
	y.occupy()
	for y.Len() < waiting {
		y.fill(waiting)
		y.pass()
	}
	return y
}

// occupy fills the workers with jobs.
func (y *yard) occupy() {
	for _, s := range y.sites {
		for missed := 0; missed < 5; {
			j := y.job(y.demand(), int32(y.IntN(3)))
			if missed++; s.fits(j.PodSets) {
				missed = 0
				y.Assign(&j, dispatch.Decision{Cluster: s.Name})
				y.running = append(y.running, j.UID)
			}
		}
	}
}

// fill puts jobs on the waiting list until it has so many.
func (y *yard) fill(waiting int) {
	for y.Len() < waiting {
		y.Enter(y.job(y.demand(), int32(y.IntN(3))))
	}
}

func (y *yard) demand() []v1alpha1.PodSet {
	at := y.IntN(len(y.demands))
	if y.IntN(2) == 0 {
		at = at / 20 * 20 // It is one pod with one GPU.
	}
	return y.demands[at]
}

func (y *yard) job(demand []v1alpha1.PodSet, priority int32) queue.Job {
	y.born++
	j := queue.Job{Created: start.Add(time.Duration(y.born) * time.Millisecond), Since: start}
	j.Namespace, j.Name = "default", fmt.Sprint("job-", y.born)
	j.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", y.Uint32(), y.born))
	j.Priority, j.PodSets = priority, demand
	j.Class = fmt.Sprintf("%p", demand)
	return j
}

// pass returns how many jobs were placed.
func (y *yard) pass() (placed int) {
	for _, o := range y.Pass(y.now, y.fleet) {
		if o.Decision.Cluster != "" {
			y.running = append(y.running, o.Job.UID)
			placed++
		}
	}
	return placed
}

// event ends a random job.
func (y *yard) event() {
	at := y.IntN(len(y.running))
	y.end(y.running[at])
	y.running = slices.Delete(y.running, at, at+1)
}

// BenchmarkDrain ends one running job after another, and places what then has room. An operation is a placement.
func BenchmarkDrain(b *testing.B) {
	const waiting = 100_000
	for name, bc := range map[string]struct {
		workers int
		waited  time.Duration // How long each job has waited.
	}{
		"100 workers":           {workers: 100},
		"1000 workers":          {workers: 1000},
		"100 workers, all held": {workers: 100, waited: time.Hour},
	} {
		b.Run(name, func(b *testing.B) {
			y := newYard(b, bc.workers, waiting)
			if y.now = y.now.Add(bc.waited); bc.waited > 0 {
				y.pass()
			}
			b.ReportAllocs()
			b.ResetTimer()
			placed, events := 0, 0
			busy, began := time.Duration(0), processorTime(b)
			for placed < b.N {
				y.event()
				placed += y.pass()
				if events++; y.Len() < waiting/2 {
					b.StopTimer()
					busy += processorTime(b) - began
					y.fill(waiting)
					began = processorTime(b)
					b.StartTimer()
				}
			}
			busy += processorTime(b) - began
			b.ReportMetric(float64(placed)/b.Elapsed().Seconds(), "placements/s")
			b.ReportMetric(float64(placed)/busy.Seconds(), "placements/cpu-s")
			b.ReportMetric(float64(placed)/float64(events), "placements/event")
		})
	}
}

// processorTime is what this process has used, with garbage collection. A busy machine does not change it.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	check.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkIdleEvent changes a worker without new room, for different numbers of waiting jobs. The ratio of the costs
// must be about 1.
func BenchmarkIdleEvent(b *testing.B) {
	sizes := []int{1000, 10_000, 100_000}
	var yards []*yard
	for _, waiting := range sizes {
		yards = append(yards, newYard(b, 100, waiting))
	}
	b.ReportAllocs()
	b.ResetTimer()
	costs := make([]time.Duration, len(sizes))
	for i := range b.N {
		for at, y := range yards {
			began := processorTime(b)
			y.touch(y.sites[i%100])
			if y.pass() > 0 {
				b.Fatal("it helped")
			}
			costs[at] += processorTime(b) - began
		}
	}
	for at, size := range sizes {
		b.ReportMetric(float64(costs[at].Nanoseconds())/float64(b.N), fmt.Sprintf("ns/event-%d", size))
	}
	b.ReportMetric(float64(costs[2])/float64(costs[0]), "100000:1000")
}

// BenchmarkEnter adds a job to the end of a long waiting list, and removes it.
func BenchmarkEnter(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	y := newYard(b, 1, 100_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		y.Enter(y.job(y.demands[0], 0))
		y.Leave(types.NamespacedName{Namespace: "default", Name: fmt.Sprint("job-", y.born)})
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/100_000, "bytes/waiting")
}
