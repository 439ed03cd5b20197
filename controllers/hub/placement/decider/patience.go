// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"time"

	"github.com/trainyard/trainyard/internal/requeue"
)

// EvictionPatience is how long a job waits for the jobs that were stopped for it. The owner of a job decides how long
// its pods take to stop (terminationGracePeriodSeconds), and must not hold up a job of higher priority for ever. After
// this time other jobs are stopped, or the waiting job goes to another worker.
const EvictionPatience = 10 * time.Minute

// losePatience notes that a worker has changed if a job there has not stopped in time, so that the jobs that wait for
// its room are decided on.
func (f *fleet) losePatience() {
	for a := range f.jobs.leaving() {
		if at := patienceEnds(a); !at.IsZero() && !a.overdue && !f.clock.Now().Before(at) {
			a.overdue = true
			f.outdate(a.worker)
		}
	}
}

// next is when time alone changes something in the fleet, the zero time if it does not.
func (f *fleet) next() time.Time {
	return requeue.Earlier(f.jobs.nextOverdue(), requeue.Earlier(f.losses.next(), f.visits.next()))
}

// nextOverdue is when the first eviction is overdue, the zero time if none will be.
func (s *assignments) nextOverdue() time.Time {
	var next time.Time
	for a := range s.leaving() {
		if at := patienceEnds(a); !at.IsZero() && !a.overdue && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// patienceEnds is the time from which no job waits for the end of an attempt. It is zero if no job waits for it now.
func patienceEnds(a *assignment) time.Time {
	if a.eviction == nil || a.eviction.For == "" {
		return time.Time{}
	}
	return a.evictedAt.Add(EvictionPatience)
}
