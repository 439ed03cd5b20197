// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"math/rand/v2"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// admission says what a worker takes.
type admission interface {
	fits(worker int, job *stream.Job) bool
	take(worker int, job *stream.Job)
	give(worker int, job *stream.Job)
}

// Race sends each job to any of the workers that take it. It is a world.System.
type Race struct {
	world     *world.World
	random    *rand.Rand
	admission admission
	waiting   waitingList
	freed     []int // Workers, each once.
	isFreed   map[int]bool
	rounds    rounds
	gate      gate
	fitting   []int // Scratch.
}

var _ world.System = &Race{}

func newRace(w *world.World, seed uint64, a admission) *Race {
	return &Race{
		world: w, admission: a, random: rand.New(rand.NewPCG(seed, 1)),
		waiting: waitingList{groups: map[alike]*group{}}, isFreed: map[int]bool{},
	}
}

// NewRandom returns the baseline that chooses among the workers on whose nodes a job fits.
func NewRandom(w *world.World, seed uint64) *Race { return newRace(w, seed, byNode{w.Workers()}) }

type byNode struct{ workers []*world.Worker }

func (b byNode) fits(worker int, job *stream.Job) bool { return b.workers[worker].Fits(job) }
func (b byNode) take(int, *stream.Job)                 {}
func (b byNode) give(int, *stream.Job)                 {}

// Arrive implements world.System.
func (r *Race) Arrive(job *stream.Job) { r.gate.enter(job, r.world.Now()) }

// Freed implements world.System.
func (r *Race) Freed(worker int, job *stream.Job) {
	r.admission.give(worker, job)
	if !r.isFreed[worker] {
		r.isFreed[worker] = true
		r.freed = append(r.freed, worker)
	}
}

// Wake implements world.System.
func (r *Race) Wake() time.Duration { return min(r.rounds.next(), r.gate.next()) }

// Decide implements world.System.
func (r *Race) Decide() {
	now := r.world.Now()
	for job := r.gate.leave(now); job != nil; job = r.gate.leave(now) {
		r.waiting.add(job)
		r.rounds.begin(job, now)
	}
	if r.rounds.pass(now) {
		for _, g := range r.waiting.order {
			g.fresh = true
		}
	}
	for g := r.waiting.first(); g != nil; g = r.waiting.first() {
		r.consider(g, now)
	}
	for _, g := range r.waiting.order {
		g.failed = false
	}
	r.freed = r.freed[:0]
	clear(r.isFreed)
}

// consider sends the first job of a group somewhere. It does not ask a worker again that did not take such a job, until
// something is freed there.
func (r *Race) consider(g *group, now time.Duration) {
	job := g.jobs[0]
	r.fitting = r.fitting[:0]
	ask := func(worker int) {
		if worker < r.rounds.nominated(job, now) && r.admission.fits(worker, job) {
			r.fitting = append(r.fitting, worker)
		}
	}
	if g.fresh {
		for worker := range r.world.Workers() {
			ask(worker)
		}
	} else {
		for _, worker := range r.freed {
			ask(worker)
		}
	}
	if len(r.fitting) == 0 {
		g.fresh, g.failed = false, true
		return
	}
	worker := r.fitting[r.random.IntN(len(r.fitting))]
	g.pop()
	r.rounds.end(job)
	r.admission.take(worker, job)
	r.world.Place(job, worker)
}
