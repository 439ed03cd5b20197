// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import "time"

// Span is a part of the virtual time: From is in it, To is not.
type Span struct{ From, To time.Duration }

// Length of the span.
func (s Span) Length() time.Duration { return s.To - s.From }

// Has says whether a time is in the span.
func (s Span) Has(at time.Duration) bool { return s.From <= at && at < s.To }

// Usage is how the GPUs were used, in GPU seconds of the measured window.
type Usage struct {
	// Available is all GPU time, Running the part on which jobs ran, and Held the part of gangs that waited for the rest
	// of their nodes.
	Available, Running, Held float64
	// Free is the part that no job had, and Partial the part of Free on nodes with some GPUs in use.
	Free, Partial float64
}

// meter adds up levels over time.
type meter struct {
	window Span
	usage  Usage
	last   time.Duration
	// series is GPU seconds that jobs ran, by step of the virtual time, until the end.
	step   time.Duration
	series []float64
}

// gauge is how many GPUs are in each state now.
type gauge struct{ all, running, held, partial int }

// seriesLength is how many points the utilisation over time has.
const seriesLength = 168

func newMeter(window Span, end time.Duration) meter {
	return meter{window: window, step: max(end/seriesLength, 1), series: make([]float64, seriesLength)}
}

// advance adds the time until now, during which nothing has changed.
func (m *meter) advance(now time.Duration, g gauge) {
	if from, to := max(m.last, m.window.From), min(now, m.window.To); from < to {
		d := (to - from).Seconds()
		m.usage.Available += d * float64(g.all)
		m.usage.Running += d * float64(g.running)
		m.usage.Held += d * float64(g.held)
		m.usage.Free += d * float64(g.all-g.running-g.held)
		m.usage.Partial += d * float64(g.partial)
	}
	for at := m.last; at < now; {
		i := int(at / m.step)
		if i >= len(m.series) {
			break
		}
		to := min(now, time.Duration(i+1)*m.step)
		m.series[i] += (to - at).Seconds() * float64(g.running)
		at = to
	}
	m.last = now
}

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
