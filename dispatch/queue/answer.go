// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Answer says what a waiting job waits for, as of the last decision about it. ok is false for a job that is not on the
// waiting list, and for a job that no pass has decided about.
func (q *Queue) Answer(key types.NamespacedName) (dispatch.Decision, bool) {
	e := q.entries[key]
	if e == nil {
		return dispatch.Decision{}, false
	}
	c := e.class
	if c.strict.holds(c, &e.Job) {
		return c.strict.queued(), true
	}
	if first := e == c.head(); first || c.reported.entry == nil {
		return c.answer, first && c.reported.entry == e
	}
	if e.reservation != nil {
		return e.reservation.answer(c.raw), true
	}
	if holdsBack(c.answer.Reason) {
		return dispatch.Decision{
			Reason: v1alpha1.ReasonQueued, Message: "older jobs with the same demand wait too", Policy: c.answer.Policy,
		}, true
	}
	return c.answer, true
}

// holdsBack says whether a reason of the first job of a class makes the other jobs of the class wait for the first job.
func holdsBack(reason string) bool { return v1alpha1.ReasonKindOf(reason).HoldsBack() }

// report adds an outcome for the first job of a class if its answer has changed, and outcomes for the other jobs if
// their reason has changed too.
func (p *pass) report(c *class, preemption *dispatch.Preemption) {
	last, now := c.reported, report{entry: c.head(), reason: c.answer.Reason, message: c.answer.Message}
	if last == now && preemption == nil {
		return
	}
	c.reported = now
	p.outcomes = append(p.outcomes, Outcome{Job: c.head().Job, Decision: c.answer, Preemption: preemption})
	if last.entry == nil || last.reason == now.reason || holdsBack(last.reason) && holdsBack(now.reason) {
		return
	}
	for _, e := range c.entries[1:] {
		if answer, ok := p.q.Answer(e.Key()); ok {
			p.outcomes = append(p.outcomes, Outcome{Job: e.Job, Decision: answer})
		}
	}
}

// answer says what a job that does not fit waits for.
func (p *pass) answer(e *entry) dispatch.Decision {
	c, decision := e.class, e.class.raw
	p.block(c, "")
	if worker := p.fleet.Evicting(e.UID); worker != "" {
		p.block(c, worker)
		decision.Reason = v1alpha1.ReasonPreempting
		decision.Message = "jobs of lower priority are being stopped on worker " + string(worker) + " to make room"
		return decision
	}
	if e.reservation != nil {
		return e.reservation.answer(decision)
	}
	if decision.Reason != v1alpha1.ReasonNoFit {
		return decision
	}
	var worker v1alpha1.ClusterName
	defer dispatch.Blame(&worker)
	for name, r := range p.q.reservations {
		worker = name
		if at := p.q.index[name]; r.isBefore(e) && p.workers[at].TakesJobs() && p.places.mayFit(c, p.workers[at].Nodes) &&
			c.decide(e, p.workers[at:at+1]).Cluster != "" {
			p.block(c, name)
			decision.Reason = v1alpha1.ReasonQueued
			decision.Message = dispatch.Cut("there is room, but it is held for a job before this one, which has waited " +
				"longer than its policy lets other jobs pass it; " + decision.Message)
			break
		}
	}
	return decision
}

// block records the worker that would have room for a class if it were not held, or if jobs had stopped there.
func (p *pass) block(c *class, worker v1alpha1.ClusterName) {
	if c.blocker = worker; worker == "" {
		delete(p.q.blocked, c)
	} else if c.strict == nil {
		p.q.blocked[c] = struct{}{}
	}
}
