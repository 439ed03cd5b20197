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
	// held are the nodes for those behind the job, at a revision of the worker. closed says how.
	held     *dispatch.Nodes
	revision uint64
	closed   bool
}

// isBefore says whether the worker is held for a job before this one. A nil reservation is before none.
func (r *reservation) isBefore(e *entry) bool { return r != nil && r.entry != e && r.entry.isBefore(e) }

// nodes that the jobs behind the reservation see. The worker's scheduler knows of no reservation: it may put their pods
// where the job needs the room. So where jobs are being stopped for it, and after as long again as it took to get the
// reservation, they see none that the job could use.
func (r *reservation) nodes(w *dispatch.Worker, fleet Fleet, now time.Time) *dispatch.Nodes {
	e := r.entry
	closed := !now.Before(e.due().Add(e.class.rules.reserveAfter)) || fleet.Evicting(e.UID) == w.Name
	if r.held != nil && r.revision == w.Revision && r.closed == closed {
		return r.held
	}
	hold := w.Nodes.Hold
	if closed {
		hold = w.Nodes.Close
	}
	r.held, r.revision, r.closed = hold(e.PodSets, fleet.Empty(w.Name)), w.Revision, closed
	return r.held
}

// answer for the job that has it.
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

// release ends the reservation of a job, if it has one.
func (q *Queue) release(e *entry) {
	if r := e.reservation; r != nil {
		delete(q.reservations, r.worker)
		q.released[r.worker] = struct{}{}
		e.reservation = nil
	}
}

// handOver gives the reservation of a job to the entry that comes in its place. What is held is another thing if the
// job's demand or place in order has changed.
func (q *Queue) handOver(from, to *entry) {
	if r := from.reservation; r != nil {
		q.release(from)
		q.reserve(to, r.worker)
	}
}

// held shows a job the workers without what is held there for jobs before it, until restore is called.
func (q *Queue) held(e *entry, workers []dispatch.Worker, fleet Fleet) (restore func()) {
	type change struct {
		at       int
		nodes    *dispatch.Nodes
		revision uint64
	}
	var changes []change
	for name, r := range q.reservations {
		if at, known := q.index[name]; known && at < len(workers) && workers[at].Name == name && r.isBefore(e) {
			w := &workers[at]
			held := r.nodes(w, fleet, q.now)
			changes = append(changes, change{at, w.Nodes, w.Revision})
			w.Nodes, w.Revision = held, 0 // Nobody may remember what is said of it.
		}
	}
	return func() {
		for _, c := range changes {
			workers[c.at].Nodes, workers[c.at].Revision = c.nodes, c.revision
		}
	}
}
