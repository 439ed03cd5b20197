// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Outcome is what a Pass has decided about a job.
type Outcome struct {
	Job Job
	// Decision has a Cluster if the job was placed and left the waiting list. Otherwise it is the job's Answer.
	Decision dispatch.Decision
	// Preemption names the jobs to stop to make room for the job. nil: none.
	Preemption *dispatch.Preemption
}

// Pass decides, in order, about all jobs that a change since the last pass could help. It returns the jobs that it has
// placed, and the jobs with a new answer: the first of a class, and all its jobs if they wait for something else now.
// After a panic over one worker Pass does without the worker, see Fleet.
func (q *Queue) Pass(now time.Time, fleet Fleet) []Outcome {
	p := &pass{q: q, now: now, fleet: fleet, places: q.places, worklist: q.worklist, lowest: map[int]int64{}}
	q.now = now
	for {
		panicked := p.run()
		if panicked == nil {
			break
		}
		fleet.Lose(panicked)
		p.restart()
	}
	clear(q.places)
	q.worklist = p.worklist
	return p.outcomes
}

// run does the rounds of a pass. A panic over one worker ends it.
func (p *pass) run() (panicked *dispatch.WorkerPanic) {
	defer func() { panicked = dispatch.BlamedOn(recover()) }()
	q := p.q
	p.findChanged()
	for {
		p.round()
		if len(p.again) == 0 {
			break
		}
		// The placements may help other jobs.
		p.changed, p.again, p.afresh = p.again, nil, false
		q.rounds++
		for _, at := range p.changed {
			q.seen[at].changed = q.rounds
		}
	}
	for i := range p.workers {
		q.seen[i].revision = p.workers[i].Revision
	}
	return nil
}

// restart makes the pass decide about all jobs again. What it has placed stays.
func (p *pass) restart() {
	for _, c := range p.worklist {
		c.queued = false
	}
	clear(p.worklist)
	p.worklist, p.changed, p.again = p.worklist[:0], nil, nil
	clear(p.places)
	clear(p.lowest)
	for _, c := range p.q.classes {
		c.renew()
		p.q.await(c)
	}
}

// pass is a running pass. It numbers the workers by their position in workers, whose order does not change meanwhile.
type pass struct {
	q       *Queue
	now     time.Time
	fleet   Fleet
	workers []dispatch.Worker
	// changed has the workers that may now have room for jobs for which they had none before.
	changed []int
	// again has the workers that may have such room because of a placement there.
	again []int
	// afresh: Pass decides about all classes.
	afresh   bool
	worklist worklist
	outcomes []Outcome
	few      []dispatch.Worker // Scratch.
	places   places
	lowest   map[int]int64 // The lowest priority of the jobs on a worker, if it was computed.
}

// findChanged finds the workers that have changed since the last pass.
func (p *pass) findChanged() {
	q := p.q
	q.rounds++
	p.workers = p.fleet.Workers()
	if !q.knows(p.workers) && q.learn(p.workers) {
		p.putAllBlocked()
	}
	for name := range q.released {
		if at, known := q.index[name]; known {
			p.touch(at)
		}
	}
	clear(q.released)
	ready := false
	for i := range p.workers {
		if w := &p.workers[i]; q.seen[i].revision != w.Revision {
			p.touch(i)
		}
		ready = ready || p.workers[i].NotReady == ""
	}
	p.afresh = ready != q.ready // The answers have other reasons then.
	q.ready = ready
}

// knows says whether the last pass had the same workers.
func (q *Queue) knows(workers []dispatch.Worker) bool {
	if len(workers) != len(q.seen) {
		return false
	}
	for i := range workers {
		if workers[i].Name != q.seen[i].name {
			return false
		}
	}
	return true
}

// learn records the workers. It says whether a worker of the last pass is gone.
func (q *Queue) learn(workers []dispatch.Worker) (lost bool) {
	known := 0
	seen := make([]seenWorker, len(workers))
	for i := range workers {
		seen[i].name = workers[i].Name
		if at, is := q.index[workers[i].Name]; is {
			seen[i].revision = q.seen[at].revision
			known++
		}
	}
	clear(q.index)
	for i := range seen {
		q.index[seen[i].name] = i
	}
	lost = known < len(q.seen)
	q.seen = seen
	return lost
}

// putAllBlocked adds to the worklist what may wait for a worker that is gone: classes with a blocker, and strict lists.
func (p *pass) putAllBlocked() {
	for c := range p.q.blocked {
		p.put(c)
	}
	for _, l := range p.q.strict {
		p.walk(l)
	}
}

// touch records that a worker may have room.
func (p *pass) touch(at int) {
	if s := &p.q.seen[at]; s.changed != p.q.rounds {
		s.changed = p.q.rounds
		p.changed = append(p.changed, at)
	}
}

// round decides once about each class that a change could help.
func (p *pass) round() {
	q := p.q
	p.prune()
	for c := range q.pending {
		p.put(c)
	}
	if p.afresh {
		for _, c := range q.classes {
			c.renew()
			p.put(c)
		}
	}
	for len(q.timers) > 0 && !q.timers[0].at.After(p.now) {
		if live := q.timers[0].isLive(); live {
			p.put(q.timers.pop().class)
		} else {
			q.timers.pop()
		}
	}
	p.help(p.changed, nil)
	for len(p.worklist) > 0 {
		p.consider(p.worklist.pop())
	}
}

// put adds a class to the worklist. For a class of a strict policy, it adds the first class of the policy.
func (p *pass) put(c *class) {
	if c.strict != nil {
		p.walk(c.strict)
	} else if c.considered != p.q.rounds {
		p.worklist.add(c)
	}
}

// walk starts to walk through a strict list, once in a round.
func (p *pass) walk(l *strictList) {
	if l.walked != p.q.rounds {
		l.walked = p.q.rounds
		l.walks++
		p.worklist.add(l.next(p.q.rounds))
	}
}

// help adds to the worklist the classes that a change of workers could help: all, or only those behind a job in order.
func (p *pass) help(changed []int, behind *entry) {
	if len(changed) == 0 {
		return
	}
	q := p.q
	wake := func(c *class) {
		if behind == nil || behind.isBefore(c.head()) {
			p.put(c)
		}
	}
	for _, b := range q.buckets {
		for _, c := range b.upTo(p.places.most(b, p.workers, changed)) {
			wake(c)
		}
	}
	for c := range q.preempting {
		if slices.ContainsFunc(changed, func(at int) bool { return p.mayPreempt(c, at) }) {
			wake(c)
		}
	}
	for c := range q.overdue {
		if slices.ContainsFunc(changed, func(at int) bool { return p.mayReserve(c.head(), at) }) {
			wake(c)
		}
	}
	for c := range q.blocked {
		if at, known := q.index[c.blocker]; known && slices.Contains(changed, at) {
			wake(c)
		}
	}
	for _, l := range q.strict {
		p.walk(l)
	}
}

// consider decides about the first job of a class.
func (p *pass) consider(c *class) {
	c.considered = p.q.rounds
	delete(p.q.pending, c)
	if c.strict != nil {
		c.strict.visit(c)
	}
	e := c.head()
	if decision := p.ask(c, e); decision.Cluster != "" {
		p.place(e, decision)
	} else {
		p.wait(e, decision)
	}
	if c.strict != nil {
		p.advance(c.strict, c)
	}
}

// advance continues a walk through a strict list, up to the first class that holds back the classes behind it.
func (p *pass) advance(l *strictList, c *class) {
	if len(c.entries) == 0 || c.considered != p.q.rounds || c.fitsEmptyOn == "" {
		if next := l.next(p.q.rounds); next != nil {
			p.worklist.add(next)
			return
		}
		c = nil
	}
	if l.holder == c && !l.dirty {
		return
	}
	l.holder, l.dirty = c, false
	for _, other := range l.classes {
		if other.considered != p.q.rounds {
			delete(p.q.pending, other)
			other.answer = l.queued()
			p.report(other, nil)
		}
	}
}

// ask decides about a job. Without news, the decision has no reason. It asks all workers about a fresh class. Otherwise
// it asks only the changed workers, usually few: the other workers have rejected the class before.
func (p *pass) ask(c *class, e *entry) dispatch.Decision {
	if c.fresh {
		return p.askAll(e)
	}
	p.few = p.few[:0]
	var worker v1alpha1.ClusterName
	defer dispatch.Blame(&worker)
	for _, at := range p.changed {
		w := &p.workers[at]
		if worker = w.Name; !w.TakesJobs() || !p.places.mayFit(c, w.Nodes) {
			continue
		}
		p.few = append(p.few, *w)
		if r := p.q.reservations[w.Name]; r.isBefore(e) {
			last := &p.few[len(p.few)-1]
			last.Nodes, last.Revision = r.nodes(w, p.fleet, p.now), 0
		}
	}
	if worker = ""; len(p.few) == 0 {
		return dispatch.Decision{}
	}
	if 4*len(p.few) >= len(p.workers) {
		return p.askAll(e)
	}
	decision := c.decide(e, p.few)
	switch {
	case decision.Cluster == "":
		return dispatch.Decision{}
	case c.rules.compares:
		return p.askAll(e)
	}
	return decision
}

func (p *pass) askAll(e *entry) dispatch.Decision {
	restore := p.q.held(e, p.workers, p.fleet)
	defer restore()
	return e.class.decide(e, p.workers)
}

// place places a job. The next job of its class then gets a decision.
func (p *pass) place(e *entry, decision dispatch.Decision) {
	q, c := p.q, e.class
	p.outcomes = append(p.outcomes, Outcome{Job: e.Job, Decision: decision})
	p.fleet.Assign(&e.Job, decision)
	p.workers = p.fleet.Workers()
	helps := q.erratic > 0 || q.reservations[decision.Cluster].isBefore(e)
	q.remove(e)
	p.freed(e)
	if helps {
		// An expression may be true because less is free there. And Hold may close other nodes of the worker now.
		at := q.index[decision.Cluster]
		p.touch(at)
		p.help([]int{at}, e)
		p.again = append(p.again, at)
	}
	if len(c.entries) > 0 {
		c.considered = 0
		if c.strict == nil {
			p.worklist.add(c)
		}
	}
}

// freed wakes the classes behind a job whose reservation has ended.
func (p *pass) freed(behind *entry) {
	for name := range p.q.released {
		if at, known := p.q.index[name]; known {
			p.touch(at)
			p.help([]int{at}, behind)
		}
	}
	clear(p.q.released)
}

// wait keeps a job on the waiting list. It holds a worker or preempts for the job if the policy allows it.
func (p *pass) wait(e *entry, decision dispatch.Decision) {
	c := e.class
	all := c.fresh
	if decision.Reason != "" {
		c.raw, c.fresh = decision, false
	}
	if c.strict != nil {
		c.findEmptyFit(p, all)
	}
	preemption := p.preempt(e)
	p.reserveIfDue(e)
	c.answer = p.answer(e)
	p.report(c, preemption)
}
