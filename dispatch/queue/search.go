// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// each calls a function with all workers, or with those that have changed, until it returns false.
func (p *pass) each(all bool, visit func(at int) bool) {
	if all {
		for at := range p.workers {
			if !visit(at) {
				return
			}
		}
		return
	}
	for _, at := range p.changed {
		if !visit(at) {
			return
		}
	}
}

// mayFitEmpty is false if the class would certainly not fit on a worker if no job ran there.
func (p *pass) mayFitEmpty(c *class, at int) bool {
	w := &p.workers[at]
	return isOpen(w) && p.places.mayFit(c, p.fleet.Empty(w.Name))
}

// fitsEmpty: the job would fit on a worker if no job ran there.
func (p *pass) fitsEmpty(e *entry, at int) bool {
	if !p.mayFitEmpty(e.class, at) {
		return false
	}
	empty := p.workers[at]
	empty.Nodes, empty.Revision = p.fleet.Empty(empty.Name), 0
	return e.class.decide(e, []dispatch.Worker{empty}).Cluster != ""
}

// findWitness finds out whether the first of a class would fit on some worker if no job ran there.
func (p *pass) findWitness(c *class, all bool) {
	if c.witness != "" {
		at, known := p.q.index[c.witness]
		if known && (p.q.seen[at].changed != p.q.sweeps && !all || p.fitsEmpty(c.head(), at)) {
			return
		}
		c.witness, all = "", true
	}
	p.each(all, func(at int) bool {
		if p.fitsEmpty(c.head(), at) {
			c.witness = p.workers[at].Name
		}
		return c.witness == ""
	})
}

// prune ends the reservations whose job may not go to the worker any more, or would not fit there if it were empty.
func (p *pass) prune() {
	q := p.q
	for name, r := range q.reservations {
		at, known := q.index[name]
		if known && (q.seen[at].changed != q.sweeps || p.fitsEmpty(r.entry, at)) {
			continue
		}
		q.release(r.entry)
		r.entry.class.unreservable = false
		p.put(r.entry.class)
	}
	clear(q.released) // Those that there are have changed.
}

// reserveIfDue holds a worker for a job that has been passed for long enough.
func (p *pass) reserveIfDue(e *entry) {
	q, c := p.q, e.class
	delete(q.overdue, c)
	if e.reservation != nil {
		return
	}
	if e.due().After(p.now) {
		c.unreservable = false
		q.timers.push(e)
		return
	}
	worker := p.choose(e, !c.unreservable)
	if c.unreservable = worker == ""; !c.unreservable {
		p.reserve(e, worker)
	} else if c.strict == nil {
		q.overdue[c] = struct{}{}
	}
}

// choose returns the worker to hold for a job: of those on which it would fit if no job ran there, and that no earlier
// job holds, the one where most of its pods have a place now. Empty: there is none.
func (p *pass) choose(e *entry, all bool) v1alpha1.ClusterName {
	var best v1alpha1.ClusterName
	most := int64(-1)
	p.each(all, func(at int) bool {
		if !p.mayReserve(e, at) {
			return true
		}
		w := &p.workers[at]
		places := w.Nodes.Places(e.PodSets)
		if (places > most || places == most && w.Name < best) && p.fitsEmpty(e, at) {
			best, most = w.Name, places
		}
		return true
	})
	return best
}

// mayReserve is false if a worker can certainly not be held for a job.
func (p *pass) mayReserve(e *entry, at int) bool {
	return !p.q.reservations[p.workers[at].Name].isBefore(e) && p.mayFitEmpty(e.class, at)
}

// reserve holds a worker for a job, instead of the one that was held for it, and of the job that it was held for.
func (p *pass) reserve(e *entry, worker v1alpha1.ClusterName) {
	q := p.q
	if e.reservation != nil {
		q.release(e)
		p.freed(e)
	}
	other := q.reservations[worker]
	if other != nil {
		q.release(other.entry)
	}
	q.reserve(e, worker)
	if other != nil {
		p.freed(other.entry)
		other.entry.class.unreservable = false
		p.put(other.entry.class)
	}
}

// preempt takes the room of jobs of lower priority. Workers that are held for jobs before this one are theirs.
func (p *pass) preempt(e *entry) *dispatch.Preemption {
	c := e.class
	if worker := p.fleet.Evicting(e.UID); worker != "" {
		c.searched = false // Nobody looks at what changes meanwhile.
		p.resume(e, worker)
		return nil
	}
	if !c.rules.preempts {
		return nil
	}
	var workers []dispatch.Worker
	p.each(!c.searched, func(at int) bool {
		if p.mayPreempt(c, at) {
			workers = append(workers, p.workers[at])
		}
		return true
	})
	c.searched = true
	if len(workers) == 0 {
		return nil
	}
	preemption, ok := dispatch.Preempt(e.Job.Job, c.policies, workers, p.fleet.Occupancy)
	if !ok {
		return nil
	}
	c.searched = false
	p.fleet.Evict(preemption, &e.Job)
	p.workers = p.fleet.Workers()
	p.reserve(e, preemption.Cluster)
	return &preemption
}

// resume holds the worker on which jobs are being stopped for a job. It is held already but for a queue that has been
// made since.
func (p *pass) resume(e *entry, worker v1alpha1.ClusterName) {
	at, known := p.q.index[worker]
	if r := e.reservation; known && (r == nil || r.worker != worker) && p.mayReserve(e, at) && p.fitsEmpty(e, at) {
		p.reserve(e, worker)
	}
}

// mayPreempt is false if the first of a class can certainly not preempt on a worker.
func (p *pass) mayPreempt(c *class, at int) bool {
	return p.mayReserve(c.head(), at) && p.lowestOn(at) < int64(c.head().Priority)
}

// lowestOn is the lowest priority of what can be preempted on a worker. Jobs that are placed meanwhile may have a lower
// one: without them there is the room that there was.
func (p *pass) lowestOn(at int) int64 {
	if lowest, known := p.lowest[at]; known {
		return lowest
	}
	lowest := int64(math.MaxInt64)
	for _, victim := range p.fleet.Occupancy(p.workers[at].Name).Victims() {
		lowest = min(lowest, int64(victim.Priority))
	}
	p.lowest[at] = lowest
	return lowest
}
