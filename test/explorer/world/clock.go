// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	"k8s.io/utils/clock"
)

// epoch is when the world begins, by a clock that is right.
var epoch = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

// Clock is the clock of a process. It has an offset, and runs fast or slow. It runs on while its process is paused.
type Clock struct {
	clock.WithDelayedExecution // Nil: methods that are not implemented are not called.

	world  *World
	offset time.Duration
	// rate is how many thousandths of a second pass on it in a second.
	rate int64
	// alarms that have not gone off.
	alarms []*alarm
}

type alarm struct {
	clock.Timer // Nil: only Stop is used.
	at          time.Duration
	ring        func()
	stopped     bool
}

// Stop implements clock.Timer.
func (a *alarm) Stop() bool {
	was := a.stopped
	a.stopped = true
	return !was
}

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time { return c.at(c.world.now) }

func (c *Clock) at(now time.Duration) time.Time {
	return epoch.Add(c.offset + now/1000*time.Duration(c.rate))
}

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// AfterFunc implements clock.WithDelayedExecution.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer {
	a := &alarm{at: c.due(d), ring: f}
	c.alarms = append(c.alarms, a)
	return a
}

// due is when a time has passed on this clock. It never comes early.
func (c *Clock) due(d time.Duration) time.Duration {
	return c.world.now + time.Duration(int64(d)/c.rate*1000) + time.Millisecond
}

// next is when the first alarm goes off, never if there is none.
func (c *Clock) next() time.Duration {
	first := never
	for _, a := range c.alarms {
		if !a.stopped {
			first = min(first, a.at)
		}
	}
	return first
}

// ring lets the alarms go off that are due.
func (c *Clock) ring() {
	var later, due []*alarm
	for _, a := range c.alarms {
		switch {
		case a.stopped:
		case a.at <= c.world.now:
			due = append(due, a)
		default:
			later = append(later, a)
		}
	}
	c.alarms = later
	for _, a := range due {
		a.ring()
	}
}
