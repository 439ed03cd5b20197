// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// rounds are how many workers are nominated for each waiting job. The zero value nominates all.
type rounds struct {
	step    int
	workers int
	begun   map[int]time.Duration
	// due are the next rounds of jobs, in order: all rounds are of the same length.
	due []round
}

type round struct {
	at  time.Duration
	job int
}

// begin nominates the first workers for a job.
func (r *rounds) begin(job *stream.Job, now time.Duration) {
	if r.step > 0 {
		r.begun[job.ID] = now
		r.due = append(r.due, round{at: now + IncrementalRound, job: job.ID})
	}
}

// end forgets a job that has been placed.
func (r *rounds) end(job *stream.Job) {
	if r.step > 0 {
		delete(r.begun, job.ID)
	}
}

// nominated is how many workers are nominated for a waiting job: the first ones.
func (r *rounds) nominated(job *stream.Job, now time.Duration) int {
	if r.step == 0 {
		return int(^uint(0) >> 1)
	}
	return r.step * (1 + int((now-r.begun[job.ID])/IncrementalRound))
}

// pass begins the rounds that are due, and says whether more workers have been nominated for somebody.
func (r *rounds) pass(now time.Duration) bool {
	more := false
	for len(r.due) > 0 && r.due[0].at <= now {
		next := r.due[0]
		r.due = r.due[1:]
		begun, waits := r.begun[next.job]
		if !waits {
			continue
		}
		more = true
		if r.step*(1+int((now-begun)/IncrementalRound)) < r.workers {
			r.due = append(r.due, round{at: next.at + IncrementalRound, job: next.job})
		}
	}
	return more
}

func (r *rounds) next() time.Duration {
	for len(r.due) > 0 {
		if _, waits := r.begun[r.due[0].job]; waits {
			return r.due[0].at
		}
		r.due = r.due[1:]
	}
	return world.Never
}

// gate lets jobs through at a rate. The zero value lets them through at once.
type gate struct {
	rate  float64
	last  time.Duration
	queue []passage
}

type passage struct {
	job *stream.Job
	at  time.Duration
}

func (g *gate) enter(job *stream.Job, now time.Duration) {
	if g.rate > 0 {
		g.last = max(g.last+time.Duration(float64(time.Second)/g.rate), now)
		now = g.last
	}
	g.queue = append(g.queue, passage{job: job, at: now})
}

// leave returns the next job that is through, or nil.
func (g *gate) leave(now time.Duration) *stream.Job {
	if len(g.queue) == 0 || g.queue[0].at > now {
		return nil
	}
	job := g.queue[0].job
	g.queue = g.queue[1:]
	return job
}

func (g *gate) next() time.Duration {
	if len(g.queue) == 0 {
		return world.Never
	}
	return g.queue[0].at
}

// waitingList has the waiting jobs, in groups of jobs that are alike: if the first job of a group does not fit, the
// others do not fit either.
type waitingList struct {
	groups map[alike]*group
	order  []*group // In the order of their first job's arrival, so that runs are repeatable.
}

type alike struct {
	shape    string
	priority int32
}

// group has jobs that are alike, the oldest first. It has at least one while it is on the list.
type group struct {
	alike
	jobs []*stream.Job
	// fresh: not all workers have been asked yet.
	fresh bool
	// failed: in this pass.
	failed bool
}

func (l *waitingList) add(job *stream.Job) {
	key := alike{shape: job.Shape(), priority: job.Priority}
	g := l.groups[key]
	if g == nil {
		g = &group{alike: key, fresh: true}
		l.groups[key] = g
		l.order = append(l.order, g)
	}
	g.jobs = append(g.jobs, job)
}

// first returns the group whose oldest job is the first in order, of the groups that have not failed, or nil.
func (l *waitingList) first() *group {
	var first *group
	for _, g := range l.order {
		if len(g.jobs) > 0 && !g.failed && (first == nil || g.before(first) < 0) {
			first = g
		}
	}
	return first
}

func (g *group) before(other *group) int {
	return cmp.Or(cmp.Compare(other.priority, g.priority), cmp.Compare(g.jobs[0].ID, other.jobs[0].ID))
}

// pop takes the first job of a group off the list.
func (g *group) pop() {
	g.jobs[0] = nil
	if g.jobs = g.jobs[1:]; len(g.jobs) == 0 {
		g.jobs, g.fresh = nil, true
	}
}

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
