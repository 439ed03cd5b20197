// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"
)

// Copy is what is known of a copy with failover Fenced that has not ended.
type Copy struct {
	// Challenge with which the hub has stamped it.
	Challenge Challenge
	// Fenced is true if it is marked as stopped by an agent, and FencedFor what the mark says.
	Fenced    bool
	FencedFor string
	// Suspended is its spec.suspend. Going: it is being deleted. Started: it has, or has had, a JobSet.
	Suspended, Going, Started bool
	// Standing beside other copies of its hub TrainJob.
	Standing Standing
	// Pods that live. They need not be known before Agent.StopsFrom.
	Pods Pods
}

// Pods of a copy that are not over. One that is being deleted lives until it is gone.
type Pods struct {
	// Alive is how many there are, Staying how many of them nobody has deleted yet.
	Alive, Staying int
	// Grace is the longest that one of them has to end after it was deleted.
	Grace time.Duration
}

// Action is what an agent does to a copy.
type Action int

// The actions, the harshest last.
const (
	// Leave it alone.
	Leave Action = iota
	// Suspend it, and mark it as fenced. Also one that is suspended already: its version changes, so that a resumption by the hub that
	// is late meets a conflict.
	Suspend
	// Delete it, in the foreground.
	Delete
	// Shorten the grace of its pods to a second.
	Shorten
)

// String names the action, for logs and tests.
func (a Action) String() string { return [...]string{"Leave", "Suspend", "Delete", "Shorten"}[a] }

// Reason is why something is done to a copy.
type Reason int

// The reasons.
const (
	// None: nothing is done.
	None Reason = iota
	// Silence: nothing is heard from the hub.
	Silence
	// LateCreation: the creation of the copy was on its way for too long, or nothing is known of its challenge.
	LateCreation
	// OldAttempt: a higher attempt was seen.
	OldAttempt
	// SecondCopy: another copy of the same attempt was seen.
	SecondCopy
	// ResumedByOthers: somebody other than the hub has resumed a copy that was stopped.
	ResumedByOthers
)

// String names the reason, for logs and tests.
func (r Reason) String() string {
	return [...]string{"None", "Silence", "LateCreation", "OldAttempt", "SecondCopy", "ResumedByOthers"}[r]
}

// Decision about a copy.
type Decision struct {
	Action Action
	Reason Reason
	// Urgent: if it cannot be suspended, it is to be deleted.
	Urgent bool
	// Again is when to look at the copy again if nothing is heard of it. Zero: not before.
	Again time.Time
}

// StopsFrom is the earliest time at which a copy may have to be stopped, whatever the grace of its pods is.
func (a *Agent) StopsFrom() time.Time {
	return a.begin(a.fenceAfter / 2)
}

// begin is when to begin with a stop that takes some time. It is never before a takeover has had its time.
func (a *Agent) begin(stop time.Duration) time.Time {
	begin := a.Deadline().Add(-stop)
	if begin.Before(a.patience) {
		return a.patience
	}
	return begin
}

// Decide says what a leading agent does about a copy. Depending on how far it is to the deadline, a copy is suspended, deleted if
// by half of the time there are pods that nobody has told to end, and pods that still live shortly before it are told to hurry.
func (a *Agent) Decide(c Copy, now time.Time) Decision {
	begin := a.begin(min(a.fenceAfter/2, c.Pods.Grace+a.slack()))
	last := a.Deadline().Add(-a.lead())
	half := begin.Add(max(0, last.Sub(begin)) / 2)
	soon := now.Add(min(max(a.lead()/4, 200*time.Millisecond), 2*time.Second))
	untouched := !c.Fenced && !c.Going
	switch {
	case c.Fenced && !c.Suspended && !c.Going:
		return Decision{Action: Delete, Reason: ResumedByOthers, Again: soon}
	case c.Standing == Outdated && untouched:
		return Decision{Action: Suspend, Reason: OldAttempt, Again: soon}
	case c.Standing == Repeated && untouched:
		return Decision{Action: Suspend, Reason: SecondCopy, Again: soon}
	case !c.Started && untouched && a.isLate(c.Challenge, now):
		return Decision{Action: Suspend, Reason: LateCreation, Again: soon}
	case now.Before(a.StopsFrom()):
		return Decision{Again: a.StopsFrom()}
	case now.Before(begin):
		// Pods with a longer grace may come until then.
		return Decision{Again: earlier(begin, now.Add(a.Interval()))}
	case !c.Going && (!c.Fenced || c.FencedFor != a.Answer()):
		return Decision{Action: Suspend, Reason: Silence, Urgent: !now.Before(half), Again: soon}
	case c.Pods.Alive == 0:
		return Decision{Again: now.Add(a.Interval())} // Should one turn up.
	case now.Before(half):
		return Decision{Again: half}
	case !c.Going && c.Pods.Staying > 0:
		return Decision{Action: Delete, Reason: Silence, Again: soon}
	case now.Before(last):
		return Decision{Again: last}
	default:
		return Decision{Action: Shorten, Reason: Silence, Again: soon}
	}
}

// isLate says whether a copy must not start. A challenge of a run that is yet to come is one of a lease that is not there any more.
func (a *Agent) isLate(c Challenge, now time.Time) bool {
	return a.Admits(c, now) == Refused || a.Open(now) && c.Run > a.latest.Run
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
