// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// DefaultFenceAfter is a WorkerCluster's spec.failover.fenceAfter where that is absent.
const DefaultFenceAfter = 10 * time.Minute

// FenceAfterOf is the fenceAfter that a WorkerCluster asks for.
func FenceAfterOf(worker *v1alpha1.WorkerCluster) time.Duration {
	if set := worker.Spec.Failover.FenceAfter; set != nil {
		return set.Duration
	}
	return DefaultFenceAfter
}

// patience is after how many intervals without a new challenge an agent is not taken for alive.
const patience = 3

// StoppedAfter is how long after the hub has read a challenge, which it then answered, copies may live on if that was the last answer.
// The margin covers what the agents need for a change of leader; a clock may be 2 % faster than another.
func StoppedAfter(fenceAfter, margin time.Duration) time.Duration {
	return fenceAfter + fenceAfter/50 + margin
}

// Presence is what a hub knows of a worker's agent.
type Presence int

// The presences.
const (
	// PresenceUnknown: not enough has been seen yet.
	PresenceUnknown Presence = iota
	// PresenceUnsupported: the worker has no ExecutionLeases.
	PresenceUnsupported
	// PresenceForbidden: the hub may not read its ExecutionLease, or not write it.
	PresenceForbidden
	// PresenceAbsent: nobody writes challenges.
	PresenceAbsent
	// PresenceSilent: nobody does any more.
	PresenceSilent
	// PresenceAlive: the agent writes challenges.
	PresenceAlive
)

// String names the presence, for logs and tests.
func (p Presence) String() string {
	names := [...]string{"Unknown", "Unsupported", "Forbidden", "Absent", "Silent", "Alive"}
	if p < 0 || int(p) >= len(names) {
		return fmt.Sprintf("Presence(%d)", int(p))
	}
	return names[p]
}

// Reading is what a hub reads in its ExecutionLease. The zero value is one that is not there.
type Reading struct {
	Challenge, Answer    Challenge
	FenceAfter, Interval time.Duration
	// Valid says that the agent takes the hub for alive.
	Valid bool
}

// Hub is one worker's execution lease in the eyes of the hub: what to answer, and when the worker's copies must have stopped if it is
// not heard of any more. All times are of one process and monotonic. The agent counts from when it wrote a challenge, the hub from
// when it has first read it, which is later.
type Hub struct {
	margin time.Duration
	// last is what was last read, if seen, read is when its challenge was read first, and fresh whether that was seen to be written.
	last  Reading
	seen  bool
	read  time.Time
	fresh bool
	// refused is why the lease cannot be used, PresenceUnknown if it can.
	refused Presence
	// believed says that an earlier process of the hub has known the agent to be alive.
	believed bool
	// answered is the last challenge that was answered, or may have been, and answeredRead when it was read first; confirmed is the last
	// one that was answered for certain, and confirmedRead when that was read.
	answered, confirmed         Challenge
	answeredRead, confirmedRead time.Time
	// contact is until when contact with the worker has been counted, and quiet how long there was contact without a new challenge.
	contact time.Time
	quiet   time.Duration
	// stopped is when copies must have stopped.
	stopped time.Time
	// longest is the longest fenceAfter by which an agent may be working, until a time.
	longest      time.Duration
	longestUntil time.Time
}

// NewHub returns a Hub that knows nothing yet.
func NewHub(margin time.Duration) *Hub { return &Hub{margin: margin} }

// Believe takes over from an earlier process of the hub: the agent was alive, worked by fenceAfter at most, and may have been answered
// until now.
func (h *Hub) Believe(fenceAfter time.Duration, now time.Time) {
	h.believed = true
	h.extend(now, fenceAfter)
}

// Read takes in the lease, as a watch shows it. What a watch shows was written before now.
func (h *Hub) Read(r Reading, now time.Time) {
	if !h.seen || r.Challenge != h.last.Challenge {
		h.fresh = h.fresh || h.seen
		h.read, h.contact, h.quiet = now, now, 0
	}
	h.last, h.seen = r, true
	switch {
	case r.Answer.IsZero():
	case r.Answer == h.answered:
		h.Confirmed(r.Answer)
		h.extend(h.answeredRead, r.FenceAfter)
	default: // Another process of the hub has answered.
		h.extend(now, r.FenceAfter)
	}
}

// Refused notes why the lease cannot be read or written, or with PresenceUnknown that it can.
func (h *Hub) Refused(why Presence) { h.refused = why }

// Contact notes that the worker has answered without a pause from one time to another, whatever its agent did.
func (h *Hub) Contact(since, last time.Time) {
	if since.Before(h.contact) {
		since = h.contact
	}
	if last.After(since) {
		h.quiet += last.Sub(since)
		h.contact = last
	}
}

// Answer says which challenge is to be answered, and with which fenceAfter, if one is. From then on it may have been, whatever becomes of
// it. It has to be written under the condition that the lease is as it was read: an answer that is late must not meet another fenceAfter.
// A challenge is answered once.
func (h *Hub) Answer(fenceAfter time.Duration) (c Challenge, due bool) {
	c = h.last.Challenge
	if c.IsZero() || c == h.last.Answer || c == h.confirmed {
		return Challenge{}, false
	}
	h.answered, h.answeredRead = c, h.read
	h.extend(h.read, fenceAfter)
	return c, true
}

// Confirmed notes that the challenge of the last Answer was written.
func (h *Hub) Confirmed(c Challenge) {
	if c == h.answered {
		h.confirmed, h.confirmedRead = c, h.answeredRead
	}
}

// extend notes that an answer to a challenge that was read at a time lets copies run for fenceAfter.
func (h *Hub) extend(read time.Time, fenceAfter time.Duration) {
	until := read.Add(StoppedAfter(fenceAfter, h.margin))
	if until.After(h.stopped) {
		h.stopped = until
	}
	switch {
	case fenceAfter > h.longest, !read.Before(h.longestUntil):
		h.longest, h.longestUntil = fenceAfter, until
	case fenceAfter == h.longest && until.After(h.longestUntil):
		h.longestUntil = until
	}
}

// ChallengeRead is when the last challenge was first read, zero if there was none.
func (h *Hub) ChallengeRead() time.Time {
	if h.last.Challenge.IsZero() {
		return time.Time{}
	}
	return h.read
}

// Longest is the longest fenceAfter by which the agent may be working: when it is made shorter, the longer one counts until all that was
// promised with it is over.
func (h *Hub) Longest() time.Duration { return h.longest }

// Presence judges by whether challenges came while there was contact. An agent that has stopped writing them may do nothing else either.
func (h *Hub) Presence() Presence {
	quiet := h.quiet > patience*h.interval()
	switch {
	case h.refused != PresenceUnknown:
		return h.refused
	case !h.seen:
		return PresenceUnknown
	case quiet && h.last.Challenge.IsZero():
		return PresenceAbsent
	case quiet:
		return PresenceSilent
	case h.fresh:
		return PresenceAlive
	}
	return PresenceUnknown
}

// QuietFor is how much longer there has to be contact without a new challenge until the agent is not taken for alive, not less than
// an interval.
func (h *Hub) QuietFor() time.Duration {
	return max(patience*h.interval()-h.quiet, h.interval())
}

func (h *Hub) interval() time.Duration {
	interval := h.last.Interval
	if interval <= 0 {
		interval = h.last.FenceAfter / 10
	}
	return min(max(interval, minInterval), maxInterval)
}

// Valid returns the last challenge that was answered, and whether a copy that carries it will be run: the agent is alive and takes the
// hub for alive, and the creation has half of the fence time to arrive.
func (h *Hub) Valid(now time.Time) (answered Challenge, ok bool) {
	young := !h.confirmed.IsZero() && now.Sub(h.confirmedRead) < h.last.FenceAfter/2
	return h.confirmed, young && h.last.Valid && h.Presence() == PresenceAlive
}

// StoppedAt is when copies that are to be fenced must have stopped if the hub does not answer any more. It is not known if there was
// no living agent when the worker was last seen.
func (h *Hub) StoppedAt() (at time.Time, known bool) {
	presence := h.Presence()
	alive := presence == PresenceAlive || presence == PresenceUnknown && h.believed
	return h.stopped, alive && !h.stopped.IsZero()
}
