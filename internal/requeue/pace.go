// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package requeue

import "time"

const (
	// quickWrites is how many changes are written at once before they back off. A gang that starts has fewer.
	quickWrites = 10
	// leastSpacing is the time between two writes when they begin to back off, and longestSpacing the time in the end.
	leastSpacing   = time.Second
	longestSpacing = 30 * time.Second
)

// Pace spaces the writes about something that a worker may change for ever. While a change waits for each write, the
// time between writes doubles. The zero value is ready for use. A Pace is not safe for concurrent use.
type Pace struct {
	// last is when the last write was tried.
	last time.Time
	// hurried is how many writes have followed each other without a rest.
	hurried int
}

// spacing is how long after the last write the next one may come.
func (p *Pace) spacing() time.Duration {
	if p.hurried < quickWrites {
		return 0
	}
	spacing := leastSpacing
	for range p.hurried - quickWrites {
		if spacing *= 2; spacing >= longestSpacing {
			return longestSpacing
		}
	}
	return spacing
}

// Due is how long until a write may come.
func (p *Pace) Due(now time.Time) time.Duration {
	return max(0, p.spacing()-now.Sub(p.last))
}

// Note notes a write of changes of which the first came at since. After a rest changes are written quickly again.
func (p *Pace) Note(since, now time.Time) {
	if since.Sub(p.last) >= 2*max(p.spacing(), leastSpacing) {
		p.hurried = 0
	}
	p.hurried = min(p.hurried+1, quickWrites+10) // More make no difference.
	p.last = now
}
