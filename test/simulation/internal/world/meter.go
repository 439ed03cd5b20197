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
