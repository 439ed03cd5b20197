// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// Handover is the most time that the hub has to answer an agent that has taken over.
	Handover = 15 * time.Second
	// MaxHandovers is how many agents in a row may have a handover without an answer from the hub.
	MaxHandovers = 3
	// Slack is the most time that is planned for the stop of a copy besides the grace of its pods. The controllers between
	// the TrainJob and its pods need it.
	Slack = 15 * time.Second

	minInterval = time.Second
	maxInterval = 10 * time.Second
	// maxLead is the most time before the deadline at which the agent shortens the grace of pods that are alive.
	maxLead = 10 * time.Second
	// maxMarks bounds the number of marks, for a fenceAfter of hours.
	maxMarks = 1024
)

// mark: at the time at, no challenge existed that is equal to or greater than before.
type mark struct {
	at     time.Time
	before Challenge
}

// Agent is one hub's execution lease as one replica of the agent knows it. All times are monotonic times of one
// process. The zero value knows nothing.
type Agent struct {
	// marks grow in both fields.
	marks []mark
	// latest is the greatest challenge that was read in the lease.
	latest Challenge
	// answer is the last answer that was read. heard is when it was first read, which is after the hub gave it.
	answer Challenge
	heard  time.Time
	// answered is the last answer whose challenge has a known age. since is a time at which the challenge did not exist
	// yet.
	answered Challenge
	since    time.Time
	// fenceAfter is the value of the answered challenge. If no answer counts yet, it is the value of the lease.
	fenceAfter time.Duration
	// patience is when the handover after a takeover ends. floor is the earliest deadline after a takeover.
	patience, floor time.Time
}

// Shown records that a read of the lease, sent at a time, showed a challenge. The zero value is no challenge. The API
// server must answer the read from its storage, not from a cache.
func (a *Agent) Shown(c Challenge, sent time.Time) {
	a.mark(mark{at: sent, before: c.Next()})
	a.See(c)
}

// Issued records that a write of a challenge, sent at a time, has succeeded. The write must fail if the lease has
// changed before it.
func (a *Agent) Issued(c Challenge, sent time.Time) {
	a.mark(mark{at: sent, before: c})
	a.See(c)
}

// See records that a challenge exists.
func (a *Agent) See(c Challenge) {
	if c.Compare(a.latest) > 0 {
		a.latest = c
	}
}

func (a *Agent) mark(m mark) {
	if n := len(a.marks); n > 0 {
		last := a.marks[n-1]
		if m.before.Compare(last.before) < 0 || m.at.Before(last.at) {
			a.marks = nil // The storage was restored: earlier marks have no order.
		} else if m.before == last.before {
			a.marks = a.marks[:n-1]
		}
	}
	a.marks = append(a.marks, m)
	// One mark that is too old to admit anything is enough to know that.
	old := slices.IndexFunc(a.marks, func(other mark) bool { return m.at.Sub(other.at) <= a.fenceAfter }) - 1
	a.marks = slices.Delete(a.marks, 0, max(0, old, len(a.marks)-maxMarks))
}

// Replaced records that the lease is a new object of the same name, with new challenges. Earlier answers still count.
func (a *Agent) Replaced() {
	a.marks, a.latest, a.answer, a.heard = nil, Challenge{}, Challenge{}, time.Time{}
}

// Latest is the greatest challenge that was read. An agent counts on from it and from the last challenge of its own
// run.
func (a *Agent) Latest() Challenge { return a.latest }

// Unmarked is true if the lease has not been read since a new challenge was seen. Then the next challenge would count
// as older than necessary.
func (a *Agent) Unmarked() bool {
	n := len(a.marks)
	return n == 0 || a.marks[n-1].before.Compare(a.latest) <= 0
}

// Answered records the hub's part of the lease. It ignores an answer that is not the greatest so far: that answer was
// late. A shorter fenceAfter counts at once, a longer one from the next answer on.
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

// existsSince returns the latest known time at which c did not exist. It returns zero if no such time is known. Zero
// counts as long ago.
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

// TakeOver records that this replica leads from now on, with its own run.
func (a *Agent) TakeOver(run int64, now time.Time) {
	a.patience, a.floor = time.Time{}, time.Time{}
	// The last answer is valid until some time between earliest and latest.
	earliest, latest := a.validUntil(), a.heard.Add(a.fenceAfter)
	if !earliest.IsZero() && latest.Sub(earliest) <= 2*a.Interval() {
		return // The two are so close that no handover is needed.
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

// validUntil is when the last answer of known age stops being valid, zero if there is no such answer.
func (a *Agent) validUntil() time.Time {
	if a.answered.IsZero() {
		return time.Time{}
	}
	return a.since.Add(a.fenceAfter)
}

// State of the lease. It is Pending on a standby that knows of no answer: the leader may know of one.
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

// StateEnds is when State changes if the hub stays silent, zero if it does not change.
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

// Answer is the last answer that was ever valid, as annotations spell it.
func (a *Agent) Answer() string {
	if a.answered.IsZero() {
		return "none"
	}
	return a.answered.String()
}

// Silence is the longest time for which the hub may have been silent, and false if the hub never answered.
func (a *Agent) Silence(now time.Time) (time.Duration, bool) {
	return now.Sub(a.since), !a.answered.IsZero()
}

// FenceAfter is the fenceAfter that the agent works with: see Answered.
func (a *Agent) FenceAfter() time.Duration { return a.fenceAfter }

// Interval is the time between two challenges.
func (a *Agent) Interval() time.Duration {
	return min(max(a.fenceAfter/10, minInterval), maxInterval)
}

func (a *Agent) slack() time.Duration { return slackOf(a.fenceAfter) }

func slackOf(fenceAfter time.Duration) time.Duration { return min(fenceAfter/3, Slack) }

// LongestGrace is the longest grace that pods have in full when their copy is fenced: see Agent.Decide. The agent
// shortens a longer one.
func LongestGrace(fenceAfter time.Duration) time.Duration { return fenceAfter/2 - slackOf(fenceAfter) }

// ShortestFenceAfter is the shortest fenceAfter with which pods have this grace in full.
func ShortestFenceAfter(grace time.Duration) time.Duration { return min(6*grace, 2*(grace+Slack)) }

func (a *Agent) lead() time.Duration { return min(a.fenceAfter/6, maxLead) }

// Admission says whether a copy that has not started may start.
type Admission int

// The admissions.
const (
	// Refused: the creation took so long that the hub may have given it up, or this replica does not know its challenge.
	Refused Admission = iota
	// NotYet: the lease is not Valid, or not for long, or this replica has not read the challenge yet.
	NotYet
	// Admitted: the copy may start.
	Admitted
)

// String names the admission, for logs and tests.
func (a Admission) String() string { return [...]string{"Refused", "NotYet", "Admitted"}[a] }

// Open is true while the lease is Valid for so long that a copy which starts now could still be stopped in time.
func (a *Agent) Open(now time.Time) bool {
	return now.Before(a.validUntil().Add(-a.fenceAfter / 2))
}

// Admits says whether a copy that the hub has stamped with a challenge may start. Two replicas may decide differently,
// because a newer replica does not know the challenge. A copy that either replica refuses must be marked as stopped, so
// that the hub stamps it again.
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
