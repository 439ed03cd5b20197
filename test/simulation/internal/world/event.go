// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import "time"

type kind uint8

const (
	ends  kind = iota // The job has run for its duration.
	stops             // The pods of a job that was stopped are gone.
)

// event is something that will happen to a run.
type event struct {
	at   time.Duration
	run  *run
	kind kind
}

// events are the future events, with the next event on top.
type events []event

func (e events) next() time.Duration {
	if len(e) == 0 {
		return Never
	}
	return e[0].at
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (e events) Len() int { return len(e) }

// Less implements heap.Interface. Of two events at one time, the event of the earlier job is first, so that runs are
// repeatable.
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].run.job.ID < e[j].run.job.ID
}

// Swap implements heap.Interface.
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
