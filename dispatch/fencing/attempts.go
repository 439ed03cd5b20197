// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// AttemptMemory is how long, at least, it is remembered of a hub TrainJob which copy of it was here last. Where fenceAfter is longer, that
// counts: until then a creation that was sent while the copy was there may still carry a challenge that is young enough.
const AttemptMemory = time.Hour

// sweepSize is how many entries there have to be before old ones are looked for.
const sweepSize = 1000

// Attempts remembers the highest attempt that was seen of each hub TrainJob, and which copy was the first of it. A creation that was sent
// twice can arrive twice, the second time when the first copy has been deleted and the job runs elsewhere. The zero value is ready for use.
type Attempts struct {
	known map[types.UID]*attempt
	// memory is how long what is not there any more is remembered, if that is longer than AttemptMemory.
	memory time.Duration
	// sweepAt is the number of entries at which old ones are removed next.
	sweepAt int
}

// attempt is the highest one of a hub TrainJob.
type attempt struct {
	number int64
	// copy is the UID of the copy that has the attempt.
	copy types.UID
	// second is the UID of another one that has come later, stamped the least challenge that was seen on it, and stopped whether it was
	// seen to be marked as stopped.
	second  types.UID
	stamped Challenge
	stopped bool
	// there: a copy of the hub TrainJob exists. at is when one was seen last.
	there bool
	at    time.Time
}

// Sighting is what is seen of a copy.
type Sighting struct {
	// Origin is the UID of its hub TrainJob, Copy its own.
	Origin, Copy types.UID
	Attempt      int64
	// Fenced: its failover is.
	Fenced bool
	// Challenge with which the hub has stamped it. Stopped: it is marked as stopped by an agent.
	Challenge Challenge
	Stopped   bool
}

// Standing is how a copy stands beside the others that were seen of its hub TrainJob.
type Standing int

// The standings.
const (
	// Current: nothing speaks against it.
	Current Standing = iota
	// Repeated: another copy has the same attempt, and the hub has not stamped this one since it is here.
	Repeated
	// Outdated: a higher attempt was seen.
	Outdated
)

// String names the standing, for logs and tests.
func (s Standing) String() string { return [...]string{"Current", "Repeated", "Outdated"}[s] }

// Keep has Attempts remember for a time, or for longer.
func (a *Attempts) Keep(memory time.Duration) { a.memory = max(a.memory, memory) }

// Standing is that of a copy that exists, or did until now. It may be told of an earlier version of the copy than Here was.
func (a *Attempts) Standing(s Sighting, now time.Time) Standing {
	return a.see(s, now).standing(s)
}

// Later is the attempt because of which a copy is Outdated, 0 if it is not.
func (a *Attempts) Later(s Sighting, now time.Time) int64 {
	if e := a.see(s, now); e.standing(s) == Outdated {
		return e.number
	}
	return 0
}

// Here notes that a copy exists. Its versions have to come in order: that a mark which was seen is gone, or that the challenge is a later
// one, says that the hub has seen this very copy and wants it to run. It returns true if that makes the copy Current.
func (a *Attempts) Here(s Sighting, now time.Time) (accepted bool) {
	e := a.see(s, now)
	e.there = true
	if e.standing(s) != Repeated {
		return false
	}
	if e.stopped && !s.Stopped || s.Challenge.Compare(e.stamped) > 0 {
		e.copy, e.second, e.stamped, e.stopped = s.Copy, "", Challenge{}, false
		return true
	}
	e.stopped = e.stopped || s.Stopped
	return false
}

// Gone notes that a copy does not exist any more.
func (a *Attempts) Gone(s Sighting, now time.Time) {
	a.see(s, now).there = false
	a.sweep(now)
}

// see returns what is known of the hub TrainJob of a copy.
func (a *Attempts) see(s Sighting, now time.Time) *attempt {
	if a.known == nil {
		a.known, a.sweepAt = map[types.UID]*attempt{}, sweepSize
	}
	e, ok := a.known[s.Origin]
	if !ok {
		e = &attempt{}
		a.known[s.Origin] = e
	}
	e.at = now
	switch {
	case !ok || s.Attempt > e.number:
		*e = attempt{number: s.Attempt, copy: s.Copy, there: e.there, at: now}
	case s.Attempt < e.number || s.Copy == e.copy:
	case !s.Fenced: // Nobody would stamp it.
		e.copy = s.Copy
	case s.Copy != e.second:
		e.second, e.stamped, e.stopped = s.Copy, s.Challenge, false
	case s.Challenge.Compare(e.stamped) < 0: // An earlier version.
		e.stamped = s.Challenge
	}
	return e
}

func (e *attempt) standing(s Sighting) Standing {
	switch {
	case s.Attempt < e.number:
		return Outdated
	case s.Copy != e.copy:
		return Repeated
	default:
		return Current
	}
}

// sweep forgets what is not there any more, now and then.
func (a *Attempts) sweep(now time.Time) {
	if len(a.known) < a.sweepAt {
		return
	}
	memory := max(AttemptMemory, a.memory)
	maps.DeleteFunc(a.known, func(_ types.UID, e *attempt) bool { return !e.there && now.Sub(e.at) > memory })
	a.sweepAt = max(sweepSize, 2*len(a.known))
}
