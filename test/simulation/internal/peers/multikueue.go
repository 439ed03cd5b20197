// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// MultiKueue's incremental dispatcher nominates IncrementalStep more workers each IncrementalRound.
const (
	IncrementalStep  = 3
	IncrementalRound = 5 * time.Minute
)

// MultiKueue says which of its dispatchers is meant.
type MultiKueue struct {
	// Step is how many workers more are nominated each IncrementalRound. 0: all at once.
	Step int
	// Rate is how many jobs a second it dispatches. 0: any number.
	Rate float64
}

// New returns the baseline.
func (m MultiKueue) New(w *world.World, seed uint64) *Race {
	r := newRace(w, seed, newQuotas(w.Workers()))
	r.rounds = rounds{step: m.Step, workers: len(w.Workers()), begun: map[int]time.Duration{}}
	r.gate.rate = m.Rate
	return r
}

// quotas are what the ClusterQueues of all workers have left.
type quotas struct {
	workers [][]quota
	taken   map[int][]int // Flavor per kind of pods, per job.
}

// quota is what is left of a flavor.
type quota struct {
	product string
	left    world.Room
}

func newQuotas(workers []*world.Worker) *quotas {
	q := &quotas{workers: make([][]quota, len(workers)), taken: map[int][]int{}}
	for i, w := range workers {
		for _, g := range w.Groups {
			at := slices.IndexFunc(q.workers[i], func(f quota) bool { return f.product == g.Product })
			if at < 0 {
				at = len(q.workers[i])
				q.workers[i] = append(q.workers[i], quota{product: g.Product})
			}
			q.workers[i][at].left.GPUs += g.Nodes * g.GPUs
			q.workers[i][at].left.Millicores += g.Nodes * g.Millicores
		}
	}
	return q
}

// flavors returns the first flavor with enough left for each kind of pods, or nil. What it returns has been taken.
func (q *quotas) flavors(worker int, job *stream.Job) []int {
	flavors := make([]int, 0, len(job.Pods))
	for i := range job.Pods {
		p := &job.Pods[i]
		at := slices.IndexFunc(q.workers[worker], func(f quota) bool {
			return (len(p.Products) == 0 || slices.Contains(p.Products, f.product)) &&
				f.left.GPUs >= p.Count*p.GPUs && f.left.Millicores >= p.Count*p.Millicores
		})
		if at < 0 {
			q.put(worker, job, flavors)
			return nil
		}
		q.workers[worker][at].left.GPUs -= p.Count * p.GPUs
		q.workers[worker][at].left.Millicores -= p.Count * p.Millicores
		flavors = append(flavors, at)
	}
	return flavors
}

// put gives back what the first kinds of pods have taken.
func (q *quotas) put(worker int, job *stream.Job, flavors []int) {
	for i, at := range flavors {
		p := &job.Pods[i]
		q.workers[worker][at].left.GPUs += p.Count * p.GPUs
		q.workers[worker][at].left.Millicores += p.Count * p.Millicores
	}
}

func (q *quotas) fits(worker int, job *stream.Job) bool {
	flavors := q.flavors(worker, job)
	q.put(worker, job, flavors)
	return flavors != nil
}

func (q *quotas) take(worker int, job *stream.Job) { q.taken[job.ID] = q.flavors(worker, job) }

func (q *quotas) give(worker int, job *stream.Job) {
	q.put(worker, job, q.taken[job.ID])
	delete(q.taken, job.ID)
}
