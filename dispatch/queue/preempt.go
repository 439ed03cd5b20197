// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

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
		if p.mayPreempt(c, at) && p.fleet.MayEvict(&e.Job, p.workers[at].Name) {
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
	if !p.fleet.Evict(preemption, &e.Job) {
		return nil
	}
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

// mayPreempt is false if the first job of a class certainly cannot preempt on a worker. It ignores jobs that are placed
// during the pass: without them there is only the room that there was before.
func (p *pass) mayPreempt(c *class, at int) bool {
	if !p.mayReserve(c.head(), at) {
		return false
	}
	lowest, known := p.lowest[at]
	if !known {
		lowest = math.MaxInt64
		for _, victim := range p.fleet.Occupancy(p.workers[at].Name).Victims() {
			lowest = min(lowest, int64(victim.Priority))
		}
		p.lowest[at] = lowest
	}
	return lowest < int64(c.head().Priority)
}

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
	defer dispatch.Blame(&w.Name)
	return w.TakesJobs() && p.places.mayFit(c, p.fleet.Empty(w.Name))
}

// fitsEmpty says whether the job would fit on a worker if no job ran there.
func (p *pass) fitsEmpty(e *entry, at int) bool {
	return p.mayFitEmpty(e.class, at) && fitsEmpty(p.workers[at], p.fleet, e.class.rules.erratic, func(w dispatch.Worker) bool {
		return e.class.decide(e, []dispatch.Worker{w}).Cluster != ""
	})
}

// findEmptyFit searches a worker on which the first job of a class would fit if no job ran there.
func (c *class) findEmptyFit(p *pass, all bool) {
	if c.fitsEmptyOn != "" {
		at, known := p.q.index[c.fitsEmptyOn]
		if known && (p.q.seen[at].changed != p.q.rounds && !all || p.fitsEmpty(c.head(), at)) {
			return
		}
		c.fitsEmptyOn, all = "", true
	}
	p.each(all, func(at int) bool {
		if p.fitsEmpty(c.head(), at) {
			c.fitsEmptyOn = p.workers[at].Name
		}
		return c.fitsEmptyOn == ""
	})
}
