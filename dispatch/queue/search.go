// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// each calls a function with all workers, or with the changed workers, until the function returns false.
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

// mayFitEmpty is false if the class certainly does not fit on a worker even if no job runs there.
func (p *pass) mayFitEmpty(c *class, at int) bool {
	w := &p.workers[at]
	return isOpen(w) && p.places.mayFit(c, p.fleet.Empty(w.Name))
}

// fitsEmpty says whether the job would fit on a worker if no job ran there.
func (p *pass) fitsEmpty(e *entry, at int) bool {
	if !p.mayFitEmpty(e.class, at) {
		return false
	}
	empty := p.workers[at]
	empty.Nodes, empty.Revision = p.fleet.Empty(empty.Name), 0
	return e.class.decide(e, []dispatch.Worker{empty}).Cluster != ""
}

// findWitness searches a worker on which the first job of a class would fit if no job ran there.
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

// prune ends reservations whose job may not go to the worker any more, or would not fit there without other jobs.
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
	clear(q.released) // Their workers have changed already.
}

// reserveIfDue holds a worker for a job that has been overtaken for long enough.
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

// choose returns the worker to hold for a job. The job would fit there if no job ran there, and no earlier job holds
// it. Of these workers it is the one with places for the most pods now. Empty: there is none.
func (p *pass) choose(e *entry, all bool) v1alpha1.ClusterName {
	var best v1alpha1.ClusterName
	most := int64(-1)
	p.each(all, func(at int) bool {
		if !p.mayReserve(e, at) {
			return true
		}
		w := &p.workers[at]
		places := w.Nodes.In(dispatch.QueueOf(&e.Job.Job)).Places(e.PodSets)
		if (places > most || places == most && w.Name < best) && p.fitsEmpty(e, at) {
			best, most = w.Name, places
		}
		return true
	})
	return best
}

// mayReserve is false if a worker certainly cannot be held for a job.
func (p *pass) mayReserve(e *entry, at int) bool {
	return !p.q.reservations[p.workers[at].Name].isBefore(e) && p.mayFitEmpty(e.class, at)
}

// reserve holds a worker for a job. The job's old reservation ends, and so does the worker's old one.
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

// preempt takes the room of jobs of lower priority. It leaves out workers that are held for jobs before this one.
func (p *pass) preempt(e *entry) *dispatch.Preemption {
	c := e.class
	if worker := p.fleet.Evicting(e.UID); worker != "" {
		c.searched = false // It does not see what changes meanwhile.
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

// resume holds the worker on which jobs are being stopped for a job. Only a new queue does not hold it already.
func (p *pass) resume(e *entry, worker v1alpha1.ClusterName) {
	at, known := p.q.index[worker]
	if r := e.reservation; known && (r == nil || r.worker != worker) && p.mayReserve(e, at) && p.fitsEmpty(e, at) {
		p.reserve(e, worker)
	}
}

// mayPreempt is false if the first job of a class certainly cannot preempt on a worker.
func (p *pass) mayPreempt(c *class, at int) bool {
	return p.mayReserve(c.head(), at) && p.lowestOn(at) < int64(c.head().Priority)
}

// lowestOn is the lowest priority of the jobs that can be preempted on a worker. It ignores jobs that are placed during
// the pass: without them there is only the room that there was before.
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
