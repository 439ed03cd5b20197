// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// waitingList has the waiting jobs, in groups of jobs that are alike: if the first job of a group does not fit, the
// others do not fit either.
type waitingList struct {
	groups map[alike]*group
	order  []*group // In the order of their first job's arrival, so that runs are repeatable.
}

type alike struct {
	shape    string
	priority int32
}

// group has jobs that are alike, the oldest first. It has at least one while it is on the list.
type group struct {
	alike
	jobs []*stream.Job
	// fresh: not all workers have been asked yet.
	fresh bool
	// failed: in this pass.
	failed bool
}

func (l *waitingList) add(job *stream.Job) {
	key := alike{shape: job.Shape(), priority: job.Priority}
	g := l.groups[key]
	if g == nil {
		g = &group{alike: key, fresh: true}
		l.groups[key] = g
		l.order = append(l.order, g)
	}
	g.jobs = append(g.jobs, job)
}

// first returns the group whose oldest job is the first in order, of the groups that have not failed, or nil.
func (l *waitingList) first() *group {
	var first *group
	for _, g := range l.order {
		if len(g.jobs) > 0 && !g.failed && (first == nil || g.before(first) < 0) {
			first = g
		}
	}
	return first
}

func (g *group) before(other *group) int {
	return cmp.Or(cmp.Compare(other.priority, g.priority), cmp.Compare(g.jobs[0].ID, other.jobs[0].ID))
}

// pop takes the first job of a group off the list.
func (g *group) pop() {
	g.jobs[0] = nil
	if g.jobs = g.jobs[1:]; len(g.jobs) == 0 {
		g.jobs, g.fresh = nil, true
	}
}
