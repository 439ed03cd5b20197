// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// Never is a time that does not come.
const Never = time.Duration(1<<63 - 1)

// System dispatches jobs to workers. It learns what happens, and acts in Decide by World.Place and World.Evict.
type System interface {
	// Arrive is called when a job is submitted, and again when a stopped job waits once more.
	Arrive(job *stream.Job)
	// Freed is called when a job has ended on a worker, or has been stopped there.
	Freed(worker int, job *stream.Job)
	// Decide is called after everything that happens at one time.
	Decide()
	// Wake returns when Decide is to be called next, even if nothing happens: Never, or a time after World.Now.
	Wake() time.Duration
}

// Options of a world.
type Options struct {
	// Window is what is measured.
	Window Span
	// Spread has schedulers of workers bind pods to the nodes with the most free, as kube-scheduler does by default.
	// Otherwise they take the nodes with the least.
	Spread bool
	// Grace is how long pods take to end that are stopped.
	Grace time.Duration
	// Checkpoint is how often a job saves what it has done. 0: never.
	Checkpoint time.Duration
}

// World is workers and jobs at a moment.
type World struct {
	options Options
	workers []*Worker
	jobs    []stream.Job
	now     time.Duration
	next    int // The job that arrives next.
	events  events
	runs    []*run
	records []Record
	gauge   gauge
	meter   meter
	system  System
}

// Record is what happened to a job.
type Record struct {
	// Job of the stream.
	Job *stream.Job
	// Done: the job has run to its end, at Ended.
	Done  bool
	Ended time.Duration
	// Ran is how long it ran, with what it lost, and Lost what it had to do again.
	Ran, Lost time.Duration
	// Pending is how long it was placed on a worker on which not all its pods had a node.
	Pending time.Duration
	// Evictions is how often it was stopped.
	Evictions int
	// Worker on which it ran last.
	Worker int
}

// Wait is how long a job was neither running nor done.
func (r *Record) Wait() time.Duration { return r.Ended - r.Job.Submitted - r.Ran }

// New returns a world before the first job arrives. The jobs must be in order, see stream.Sort, and are not changed.
func New(specs []WorkerSpec, jobs []stream.Job, options Options) *World {
	w := &World{options: options, jobs: jobs, runs: make([]*run, len(jobs)), records: make([]Record, len(jobs))}
	for _, spec := range specs {
		worker := newWorker(spec)
		w.workers = append(w.workers, worker)
		w.gauge.all += worker.free
	}
	for i := range jobs {
		w.records[i].Job = &jobs[i]
	}
	end := options.Window.To
	if len(jobs) > 0 {
		end = max(end, jobs[len(jobs)-1].Submitted)
	}
	w.meter = newMeter(options.Window, end)
	return w
}

// Now is the time since the beginning.
func (w *World) Now() time.Duration { return w.now }

// Workers returns all workers.
func (w *World) Workers() []*Worker { return w.workers }

// maxIdle is how often a system may ask to be woken while nothing else will happen. After that it counts as stuck.
const maxIdle = 10000

// Run lets a system dispatch until all jobs are done, or until nothing would happen any more.
func (w *World) Run(system System) {
	w.system = system
	for idle := 0; idle < maxIdle; {
		at := min(w.arrival(), w.events.next(), system.Wake())
		if at == Never {
			return
		}
		if w.next < len(w.jobs) || len(w.events) > 0 {
			idle = 0
		} else {
			idle++
		}
		w.advance(max(at, w.now))
		for len(w.events) > 0 && w.events[0].at <= w.now {
			w.happen(heap.Pop(&w.events).(event))
		}
		for w.arrival() <= w.now {
			system.Arrive(&w.jobs[w.next])
			w.next++
		}
		system.Decide()
	}
}

func (w *World) arrival() time.Duration {
	if w.next == len(w.jobs) {
		return Never
	}
	return w.jobs[w.next].Submitted
}

func (w *World) advance(to time.Duration) {
	w.meter.advance(to, w.gauge)
	w.now = to
}

// Place sends a job to a worker, whose scheduler binds its pods as far as there is room.
func (w *World) Place(job *stream.Job, worker int) {
	if w.runs[job.ID] != nil {
		panic(fmt.Sprintf("job %d has been placed twice", job.ID))
	}
	r := newRun(job, worker)
	r.placed = w.now
	w.runs[job.ID] = r
	w.records[job.ID].Worker = worker
	if !w.bind(r) {
		w.workers[worker].wait(r)
	}
}

// bind gives a run the nodes that there are, and starts it if it has all.
func (w *World) bind(r *run) bool {
	worker := w.workers[r.worker]
	held, partial := r.held, worker.partial
	complete := worker.bind(r, w.options.Spread)
	w.gauge.held += r.held - held
	w.gauge.partial += worker.partial - partial
	if complete {
		w.start(r)
	}
	return complete
}

func (w *World) start(r *run) {
	record := &w.records[r.job.ID]
	r.running, r.started = true, w.now
	record.Pending += w.now - r.placed
	w.gauge.held -= r.held
	w.gauge.running += r.held
	heap.Push(&w.events, event{at: w.now + r.job.Duration - (record.Ran - record.Lost), run: r, kind: ends})
}

// Evict stops a job. Its pods are gone after the grace; then it waits again.
func (w *World) Evict(job *stream.Job) {
	if r := w.runs[job.ID]; r != nil && !r.leaving {
		r.leaving = true
		heap.Push(&w.events, event{at: w.now + w.options.Grace, run: r, kind: stops})
	}
}

// happen carries out an event. The event of a run that has already ended in another way has no effect.
func (w *World) happen(e event) {
	r := e.run
	if w.runs[r.job.ID] != r {
		return
	}
	record := &w.records[r.job.ID]
	w.stop(r, record)
	if e.kind == ends {
		record.Done, record.Ended = true, w.now
	} else {
		record.Evictions++
		if done := record.Ran - record.Lost; w.options.Checkpoint > 0 {
			record.Lost += done % w.options.Checkpoint
		} else {
			record.Lost += done
		}
	}
	w.system.Freed(r.worker, r.job)
	if e.kind == stops {
		w.system.Arrive(r.job)
	}
}

// stop takes a run off its worker, and gives what becomes free to the runs that wait for nodes there.
func (w *World) stop(r *run, record *Record) {
	worker := w.workers[r.worker]
	if r.running {
		record.Ran += w.now - r.started
		w.gauge.running -= r.held
	} else {
		record.Pending += w.now - r.placed
		w.gauge.held -= r.held
		worker.pending = slices.DeleteFunc(worker.pending, func(other *run) bool { return other == r })
	}
	partial := worker.partial
	worker.release(r)
	w.gauge.partial += worker.partial - partial
	w.runs[r.job.ID] = nil
	worker.pending = slices.DeleteFunc(worker.pending, w.bind)
}

// Result is what happened to all jobs and GPUs.
type Result struct {
	Records []Record
	Usage   Usage
	// Series is the share of GPUs that ran jobs in each Step of the time.
	Series []float64
	Step   time.Duration
}

// Result returns what has happened so far.
func (w *World) Result() Result {
	r := Result{Records: w.records, Usage: w.meter.usage, Step: w.meter.step, Series: slices.Clone(w.meter.series)}
	for i := range r.Series {
		r.Series[i] /= w.meter.step.Seconds() * float64(max(w.gauge.all, 1))
	}
	return r
}

// Job of the stream.
func (w *World) Job(id int) *stream.Job { return &w.jobs[id] }

// LevelsWithout is Levels as they would be if some jobs were gone. A group can be visited more than once with the same
// room.
func (w *World) LevelsWithout(worker int, jobs []int, visit func(spec *GroupSpec, room Room, nodes int)) {
	type node struct {
		group *group
		index int32
	}
	freed := map[node]Room{}
	for _, job := range jobs {
		r := w.runs[job]
		if r == nil || r.worker != worker {
			continue
		}
		for _, s := range r.spots {
			at, p := node{s.group, s.node}, &r.job.Pods[s.kind]
			room, known := freed[at]
			if !known {
				room = s.group.at[s.node].Room
			}
			freed[at] = Room{GPUs: room.GPUs + p.GPUs, Millicores: room.Millicores + p.Millicores}
		}
	}
	moved := map[*level]int{}
	for at, room := range freed {
		moved[at.group.at[at.index]]++
		visit(&at.group.GroupSpec, room, 1)
	}
	for _, g := range w.workers[worker].groups {
		for _, l := range g.levels {
			if nodes := len(l.nodes) - moved[l]; nodes > 0 {
				visit(&g.GroupSpec, l.Room, nodes)
			}
		}
	}
}
