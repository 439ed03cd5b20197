// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"container/heap"
	"time"
)

// timer is when a job is due for a reservation.
type timer struct {
	at    time.Time
	entry *entry
}

// isLive says whether the job is still the first of its class and has no reservation.
func (t timer) isLive() bool {
	c := t.entry.class
	return len(c.entries) > 0 && c.head() == t.entry && t.entry.reservation == nil
}

// timers is a heap with the next timer on top. Timers of jobs that are gone stay until they are on top.
type timers []timer

func (t *timers) push(e *entry) {
	if !e.timed {
		e.timed = true
		heap.Push(t, timer{at: e.due(), entry: e})
	}
}

func (t *timers) pop() *entry {
	e := heap.Pop(t).(timer).entry
	e.timed = false
	return e
}

// Len implements heap.Interface.
func (t timers) Len() int { return len(t) }

// Less implements heap.Interface.
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

// Swap implements heap.Interface.
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = timer{}
	*t = (*t)[:last]
	return x
}
