// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"time"
)

// patience is the number of intervals without a new challenge after which an agent does not count as alive.
const patience = 3

// stoppedAfter is how long after it has read a challenge the hub must wait until all fenced copies have stopped, if it
// answers no later challenge. The margin covers changes of leader among the agents. The agent's clock may be 2 % slower
// than the hub's.
func stoppedAfter(fenceAfter, margin time.Duration) time.Duration {
	return fenceAfter + fenceAfter/50 + margin
}

// AgentState is what a hub knows of a worker's agent.
type AgentState int

// The states of an agent.
const (
	// AgentUnknown: the hub has not seen enough yet.
	AgentUnknown AgentState = iota
	// AgentUnsupported: the worker has no ExecutionLeases.
	AgentUnsupported
	// AgentForbidden: the hub may not read or may not write its ExecutionLease.
	AgentForbidden
	// AgentAbsent: no agent has written a challenge.
	AgentAbsent
	// AgentSilent: the agent has stopped writing challenges.
	AgentSilent
	// AgentAlive: the agent writes challenges.
	AgentAlive
)

// String names the state, for logs and tests.
func (s AgentState) String() string {
	names := [...]string{"Unknown", "Unsupported", "Forbidden", "Absent", "Silent", "Alive"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("AgentState(%d)", int(s))
	}
	return names[s]
}

// Reading is what a hub reads in its ExecutionLease. The zero value stands for a lease that does not exist.
type Reading struct {
	Challenge, Answer    Challenge
	FenceAfter, Interval time.Duration
	// Valid says that the agent considers the hub alive.
	Valid bool
}

// Hub is one worker's execution lease as the hub knows it: what to answer, and when the copies on the worker must have
// stopped if contact is lost. All times are monotonic times of one process. The agent counts from when it wrote a
// challenge. The hub counts from when it first read the challenge, which is later.
type Hub struct {
	margin time.Duration
	// last is the last reading, if seen. read is when its challenge was first read. fresh says that a new challenge was
	// seen.
	last  Reading
	seen  bool
	read  time.Time
	fresh bool
	// refused is why the hub cannot use the lease, AgentUnknown if it can.
	refused AgentState
	// believed says that an earlier process of the hub knew that the agent is alive.
	believed bool
	// answered is the last challenge that the hub may have answered, first read at answeredRead. confirmed is the last
	// challenge that the hub has certainly answered, first read at confirmedRead.
	answered, confirmed         Challenge
	answeredRead, confirmedRead time.Time
	// contact is until when contact is counted. quiet is how long there was contact without a new challenge.
	contact time.Time
	quiet   time.Duration
	// stopped is when copies must have stopped.
	stopped time.Time
	// longest is the longest fenceAfter that an agent may work with until longestUntil.
	longest      time.Duration
	longestUntil time.Time
}

// NewHub returns a Hub that knows nothing yet.
func NewHub(margin time.Duration) *Hub { return &Hub{margin: margin} }

// Believe takes over from an earlier process of the hub. That process knew that the agent is alive and works with at
// most fenceAfter, and may have answered it until now.
func (h *Hub) Believe(fenceAfter time.Duration, now time.Time) {
	h.believed = true
	h.extend(now, fenceAfter)
}

// Read records the lease as a watch shows it. What a watch shows was written before now.
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

// Refused records why the hub cannot read or write the lease. AgentUnknown records that it can.
func (h *Hub) Refused(why AgentState) { h.refused = why }

// Contact records that the worker has answered from one time to another without a pause, whatever its agent did.
func (h *Hub) Contact(since, last time.Time) {
	if since.Before(h.contact) {
		since = h.contact
	}
	if last.After(since) {
		h.quiet += last.Sub(since)
		h.contact = last
	}
}

// Answer says whether a challenge is to be answered with fenceAfter, and which one. From then on the answer may have
// arrived, even if its write fails. The write needs the condition that the lease is as it was read, so that a late
// answer does not meet another fenceAfter. The hub answers a challenge once.
func (h *Hub) Answer(fenceAfter time.Duration) (c Challenge, due bool) {
	c = h.last.Challenge
	if c.IsZero() || c == h.last.Answer || c == h.confirmed {
		return Challenge{}, false
	}
	h.answered, h.answeredRead = c, h.read
	h.extend(h.read, fenceAfter)
	return c, true
}

// Confirmed records that the answer to the challenge of the last Answer was written.
func (h *Hub) Confirmed(c Challenge) {
	if c == h.answered {
		h.confirmed, h.confirmedRead = c, h.answeredRead
	}
}

// extend records that an answer lets copies run for fenceAfter. The hub has read the answer's challenge at a time.
func (h *Hub) extend(read time.Time, fenceAfter time.Duration) {
	until := read.Add(stoppedAfter(fenceAfter, h.margin))
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

// Longest is the longest fenceAfter that the agent may work with. A longer value that was replaced by a shorter one
// counts until all answers that carried it are too old.
func (h *Hub) Longest() time.Duration { return h.longest }

// AgentState is what the hub knows of the agent now. It depends on new challenges during contact: an agent that writes
// no challenges may do no other work either.
func (h *Hub) AgentState() AgentState {
	quiet := h.quiet > patience*h.interval()
	switch {
	case h.refused != AgentUnknown:
		return h.refused
	case !h.seen:
		return AgentUnknown
	case quiet && h.last.Challenge.IsZero():
		return AgentAbsent
	case quiet:
		return AgentSilent
	case h.fresh:
		return AgentAlive
	}
	return AgentUnknown
}

// QuietFor is how much more contact without a new challenge there has to be until the agent counts as silent. It is at
// least an interval.
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

// Valid returns the last answered challenge, and whether a copy that carries it will run: the agent is alive, considers
// the hub alive, and the creation has half of fenceAfter to arrive.
func (h *Hub) Valid(now time.Time) (answered Challenge, ok bool) {
	young := !h.confirmed.IsZero() && now.Sub(h.confirmedRead) < h.last.FenceAfter/2
	return h.confirmed, young && h.last.Valid && h.AgentState() == AgentAlive
}

// StoppedAt is when fenced copies must have stopped if the hub does not answer any more. It is not known if no agent
// was alive at the last contact with the worker.
func (h *Hub) StoppedAt() (at time.Time, known bool) {
	state := h.AgentState()
	alive := state == AgentAlive || state == AgentUnknown && h.believed
	return h.stopped, alive && !h.stopped.IsZero()
}
