// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import "github.com/trainyard/trainyard/dispatch"

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
