// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// reservation holds a worker for a job.
type reservation struct {
	worker v1alpha1.ClusterName
	entry  *entry
	// held has the nodes for jobs behind the job, at a revision of the worker. closed says that it comes from Close.
	held     *dispatch.Nodes
	revision uint64
	closed   bool
}

// isBefore says whether the worker is held for a job before this one. A nil reservation is before none.
func (r *reservation) isBefore(e *entry) bool { return r != nil && r.entry != e && r.entry.isBefore(e) }

// nodes are what the jobs behind the reservation get. The worker's scheduler does not know of the reservation, and may
// put their pods where the job needs the room. So they get no node that the job could use if jobs are being stopped for
// the job, or if the job has waited for its reserveAfter once more.
func (r *reservation) nodes(w *dispatch.Worker, fleet Fleet, now time.Time) *dispatch.Nodes {
	defer dispatch.Blame(&w.Name)
	e := r.entry
	closed := !now.Before(e.due().Add(e.class.rules.reserveAfter)) || fleet.Evicting(e.UID) == w.Name
	if r.held != nil && r.revision == w.Revision && r.closed == closed {
		return r.held
	}
	nodes, empty := w.NodesFor(&e.Job.Job), fleet.Empty(w.Name)
	if r.revision, r.closed = w.Revision, closed; closed {
		r.held = nodes.Close(e.PodSetsOn(w.Name), empty) // Whichever domain the job gets, if it requires one.
	} else {
		r.held = nodes.Hold(w.DemandToHold(&e.Job.Job, empty), empty)
	}
	return r.held
}

// answer is the answer for the job with the reservation.
func (r *reservation) answer(decision dispatch.Decision) dispatch.Decision {
	decision.Reason = v1alpha1.ReasonReserved
	decision.Message = dispatch.Cut(fmt.Sprintf("worker %s is held for the job until it has room; %s", r.worker, decision.Message))
	return decision
}

// reserve holds a worker for a job. Both must have no reservation.
func (q *Queue) reserve(e *entry, worker v1alpha1.ClusterName) {
	e.reservation = &reservation{worker: worker, entry: e}
	q.reservations[worker] = e.reservation
}

// endReservation ends the reservation of a job if there is one.
func (q *Queue) endReservation(e *entry) {
	if r := e.reservation; r != nil {
		delete(q.reservations, r.worker)
		q.released[r.worker] = struct{}{}
		e.reservation = nil
	}
}

// handOver moves a job's reservation to its new entry. What is held may change with the job's demand or place in order.
func (q *Queue) handOver(from, to *entry) {
	if r := from.reservation; r != nil {
		q.endReservation(from)
		q.reserve(to, r.worker)
	}
}

// held takes off the workers what is held for jobs before a job, until the caller calls restore.
func (q *Queue) held(e *entry, workers []dispatch.Worker, fleet Fleet) (restore func()) {
	type change struct {
		at       int
		nodes    *dispatch.Nodes
		revision uint64
	}
	var changes []change
	for name, r := range q.reservations {
		if at, known := q.index[name]; known && at < len(workers) && workers[at].Name == name && r.isBefore(e) {
			changes = append(changes, change{at, r.nodes(&workers[at], fleet, q.now), 0}) // No answer for these nodes may be cached.
		}
	}
	swap := func() {
		for i := range changes {
			c := &changes[i]
			w := &workers[c.at]
			w.Nodes, w.Revision, c.nodes, c.revision = c.nodes, c.revision, w.Nodes, w.Revision
		}
	}
	swap()
	return swap
}

// prune ends reservations whose job may not go to the worker any more, or would not fit there without other jobs.
func (p *pass) prune() {
	q := p.q
	for name, r := range q.reservations {
		at, known := q.index[name]
		if known && (q.seen[at].changed != q.rounds || p.fitsEmpty(r.entry, at)) {
			continue
		}
		q.endReservation(r.entry)
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
		defer dispatch.Blame(&w.Name)
		places := w.PlacesFor(&e.Job.Job)
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
		q.endReservation(e)
		p.freed(e)
	}
	other := q.reservations[worker]
	if other != nil {
		q.endReservation(other.entry)
	}
	q.reserve(e, worker)
	if other != nil {
		p.freed(other.entry)
		other.entry.class.unreservable = false
		p.put(other.entry.class)
	}
}
