// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// Handover is the most time that an agent which has taken over has until the hub must have answered it.
	Handover = 15 * time.Second
	// MaxHandovers is how many agents have that, one after the other, without any of them being answered.
	MaxHandovers = 3
	// Slack is the most time that is planned for the stop of a copy besides the grace of its pods: for the controllers between the
	// TrainJob and its pods.
	Slack = 15 * time.Second

	minInterval = time.Second
	maxInterval = 10 * time.Second
	// maxLead is the most time before the deadline at which pods that still live get a shorter grace.
	maxLead = 10 * time.Second
	// maxMarks bounds what is remembered of challenges, should fenceAfter be hours.
	maxMarks = 1024
)

// mark says that, at a time, no challenge from before on existed yet.
type mark struct {
	at     time.Time
	before Challenge
}

// Agent is one hub's execution lease in the eyes of one replica of the agent. All times are of one process and monotonic. The zero
// value knows nothing.
type Agent struct {
	// marks grow, in both fields.
	marks []mark
	// latest is the greatest challenge that was seen in the lease.
	latest Challenge
	// answer is the last answer that was seen, heard when that was first, which is after it was given.
	answer Challenge
	heard  time.Time
	// answered is the last answer whose challenge has a known age, and since a time at which the challenge did not exist yet.
	answered Challenge
	since    time.Time
	// fenceAfter of answered, or of the lease as it is, if no answer counts yet.
	fenceAfter time.Duration
	// patience is how long the leader waits for an answer after a takeover, and floor the earliest deadline from then on.
	patience, floor time.Time
}

// Shown notes that a read of the lease which was sent at a time showed a challenge, none being the zero value. The read has to be
// answered by the API server's storage, not by a cache.
func (a *Agent) Shown(c Challenge, sent time.Time) {
	a.mark(mark{at: sent, before: c.Next()})
	a.See(c)
}

// Issued notes that a challenge was written, by a write that was sent at a time, has succeeded, and would not have if the lease had
// changed before.
func (a *Agent) Issued(c Challenge, sent time.Time) {
	a.mark(mark{at: sent, before: c})
	a.See(c)
}

// See notes that a challenge exists.
func (a *Agent) See(c Challenge) {
	if c.Compare(a.latest) > 0 {
		a.latest = c
	}
}

func (a *Agent) mark(m mark) {
	if n := len(a.marks); n > 0 {
		last := a.marks[n-1]
		if m.before.Compare(last.before) < 0 || m.at.Before(last.at) {
			a.marks = nil // The worker's storage was set back. What was before is no order any more.
		} else if m.before == last.before {
			a.marks = a.marks[:n-1]
		}
	}
	a.marks = append(a.marks, m)
	// One mark that is old enough to admit nothing suffices to know that.
	old := slices.IndexFunc(a.marks, func(other mark) bool { return m.at.Sub(other.at) <= a.fenceAfter }) - 1
	a.marks = slices.Delete(a.marks, 0, max(0, old, len(a.marks)-maxMarks))
}

// Replaced notes that the lease is another object of the same name, with other challenges. What was answered was answered.
func (a *Agent) Replaced() {
	a.marks, a.latest, a.answer, a.heard = nil, Challenge{}, Challenge{}, time.Time{}
}

// Latest is the greatest challenge that was seen. With that of its own run, it is what an agent counts on from.
func (a *Agent) Latest() Challenge { return a.latest }

// Unmarked is true if a challenge was seen after which the lease has not been read, so that the next one would be taken for older
// than it need be.
func (a *Agent) Unmarked() bool {
	n := len(a.marks)
	return n == 0 || a.marks[n-1].before.Compare(a.latest) <= 0
}

// Answered notes what the hub's part of the lease is. An answer that is not the greatest so far says nothing: it was late. A shorter
// fenceAfter counts at once, a longer one from the next answer on.
func (a *Agent) Answered(c Challenge, fenceAfter time.Duration, now time.Time) {
	if c == a.answer && a.fenceAfter != 0 && fenceAfter >= a.fenceAfter && c == a.answered {
		return
	}
	if c.Compare(a.answer) > 0 {
		a.answer, a.heard = c, now
	}
	if since := a.existsSince(c); !since.IsZero() && c.Compare(a.answered) > 0 {
		a.answered, a.since, a.fenceAfter = c, since, fenceAfter
	}
	if a.answered.IsZero() || fenceAfter < a.fenceAfter {
		a.fenceAfter = fenceAfter
	}
}

// existsSince is a time at which a challenge did not exist yet, the last that is known, or zero, which is long ago.
func (a *Agent) existsSince(c Challenge) time.Time {
	if c.IsZero() {
		return time.Time{}
	}
	for _, m := range slices.Backward(a.marks) {
		if m.before.Compare(c) <= 0 {
			return m.at
		}
	}
	return time.Time{}
}

// TakeOver notes that this replica leads from now on, with a run of its own.
func (a *Agent) TakeOver(run int64, now time.Time) {
	a.patience, a.floor = time.Time{}, time.Time{}
	// The last answer counts until some time between these two.
	earliest, latest := a.validUntil(), a.heard.Add(a.fenceAfter)
	if !earliest.IsZero() && latest.Sub(earliest) <= 2*a.Interval() {
		return // That is as good as knowing it.
	}
	patience := now.Add(min(a.fenceAfter/10, Handover))
	if !a.heard.IsZero() && latest.Before(patience) {
		patience = latest
	}
	if run-a.answer.Run > MaxHandovers || patience.Before(now) {
		patience = now
	}
	a.patience, a.floor = patience, patience.Add(a.slack())
}

// validUntil is when the last answer of known age ends, zero if there is none.
func (a *Agent) validUntil() time.Time {
	if a.answered.IsZero() {
		return time.Time{}
	}
	return a.since.Add(a.fenceAfter)
}

// State of the lease. That a replica which does not lead knows of no answer means nothing, and is Pending.
func (a *Agent) State(now time.Time) v1alpha1.LeaseState {
	switch {
	case now.Before(a.validUntil()):
		return v1alpha1.LeaseValid
	case now.Before(a.patience), a.answered.IsZero() && a.floor.IsZero():
		return v1alpha1.LeasePending
	default:
		return v1alpha1.LeaseExpired
	}
}

// Deadline is when the pods of the copies must have ended, zero if nothing is known.
func (a *Agent) Deadline() time.Time {
	if valid := a.validUntil(); valid.After(a.floor) {
		return valid
	}
	return a.floor
}

// StateEnds is when State changes if nothing is heard, zero if it does not.
func (a *Agent) StateEnds(now time.Time) time.Time {
	switch a.State(now) {
	case v1alpha1.LeaseValid:
		return a.validUntil()
	case v1alpha1.LeasePending:
		return a.patience
	default:
		return time.Time{}
	}
}

// Answer is the last answer that counts or has counted, as it stands in annotations.
func (a *Agent) Answer() string {
	if a.answered.IsZero() {
		return "none"
	}
	return a.answered.String()
}

// Silence is for how long nothing was heard from the hub, at most, and false if it was never heard.
func (a *Agent) Silence(now time.Time) (time.Duration, bool) {
	return now.Sub(a.since), !a.answered.IsZero()
}

// FenceAfter is what the lease says, or the last answer that counts said.
func (a *Agent) FenceAfter() time.Duration { return a.fenceAfter }

// Interval is the time between two challenges.
func (a *Agent) Interval() time.Duration {
	return min(max(a.fenceAfter/10, minInterval), maxInterval)
}

func (a *Agent) slack() time.Duration { return min(a.fenceAfter/3, Slack) }

func (a *Agent) lead() time.Duration { return min(a.fenceAfter/6, maxLead) }

// Admission says whether a copy that has not started may.
type Admission int

// The admissions.
const (
	// Refused: it was on its way for so long that the hub may have given it up, or it came with no challenge of ours.
	Refused Admission = iota
	// NotYet: the lease is not Valid, or not for long, or the challenge has yet to be heard of here.
	NotYet
	// Admitted: it may start.
	Admitted
)

// String names the admission, for logs and tests.
func (a Admission) String() string { return [...]string{"Refused", "NotYet", "Admitted"}[a] }

// Open is true while the lease is Valid for so long that what starts now could still be stopped in time.
func (a *Agent) Open(now time.Time) bool {
	return now.Before(a.validUntil().Add(-a.fenceAfter / 2))
}

// Admits says whether a copy that the hub has stamped with a challenge may start. Two replicas can differ: one that came later does
// not know the challenge. What either refuses has to be marked as stopped, so that the hub stamps it anew.
func (a *Agent) Admits(c Challenge, now time.Time) Admission {
	switch {
	case !a.Open(now), c.Compare(a.latest) > 0:
		return NotYet
	case now.Before(a.existsSince(c).Add(a.fenceAfter)):
		return Admitted
	default:
		return Refused
	}
}
