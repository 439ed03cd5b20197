// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"
)

// Copy is what the agent knows of a copy with failover Fenced that has not ended.
type Copy struct {
	// Challenge is the hub's stamp on the copy.
	Challenge Challenge
	// Stopped is true if an agent has marked the copy as stopped. StoppedFor is the value of the mark.
	Stopped    bool
	StoppedFor string
	// Suspended is spec.suspend. Going: the copy is being deleted. Started: the copy has or had a JobSet.
	Suspended, Going, Started bool
	// Rank among the copies of its hub TrainJob.
	Rank Rank
	// Pods that are alive. They need not be known before Agent.StopsFrom.
	Pods Pods
}

// Pods counts the pods of a copy that have not ended. A pod that is being deleted is alive until it is gone.
type Pods struct {
	// Alive counts all of them. Staying counts the pods that nobody has deleted yet.
	Alive, Staying int
	// Grace is the longest time that one of the pods has to end after its deletion.
	Grace time.Duration
}

// Action is what an agent does to a copy.
type Action int

// The actions, from the mildest to the harshest.
const (
	// Leave the copy alone.
	Leave Action = iota
	// Suspend the copy, and mark it as fenced, even if it is suspended. This changes its version, so a late resumption by
	// the hub fails with Conflict.
	Suspend
	// Delete the copy in the foreground.
	Delete
	// Shorten the grace of the copy's pods to a second.
	Shorten
)

// String names the action, for logs and tests.
func (a Action) String() string { return [...]string{"Leave", "Suspend", "Delete", "Shorten"}[a] }

// Reason is why the agent acts on a copy.
type Reason int

// The reasons.
const (
	// None: the agent does nothing.
	None Reason = iota
	// Silence: the hub is silent.
	Silence
	// LateCreation: the creation of the copy took too long, or the agent does not know its challenge.
	LateCreation
	// OldAttempt: the agent has seen a higher attempt.
	OldAttempt
	// SecondCopy: the agent has seen another copy of the same attempt.
	SecondCopy
	// ResumedByOthers: somebody other than the hub has resumed a stopped copy. Where config/admission is installed, the
	// API server refuses that.
	ResumedByOthers
)

// String names the reason, for logs and tests.
func (r Reason) String() string {
	return [...]string{"None", "Silence", "LateCreation", "OldAttempt", "SecondCopy", "ResumedByOthers"}[r]
}

// Decision is what to do about a copy.
type Decision struct {
	Action Action
	Reason Reason
	// Urgent: if the suspension fails, the agent deletes the copy.
	Urgent bool
	// Again is when to decide again if no event about the copy comes. Zero: only an event is a reason.
	Again time.Time
}

// StopsFrom is the earliest time at which the agent may have to stop a copy, whatever the grace of its pods is.
func (a *Agent) StopsFrom() time.Time {
	return a.begin(a.fenceAfter / 2)
}

// begin is when to begin a stop that takes some time. It is never before the end of a handover.
func (a *Agent) begin(stop time.Duration) time.Time {
	begin := a.Deadline().Add(-stop)
	if begin.Before(a.patience) {
		return a.patience
	}
	return begin
}

// Decide says what a leading agent does about a copy. In time for the deadline, the agent suspends the copy. Halfway
// from there to the last moment, it deletes the copy if any of its pods is not being deleted yet. Shortly before the
// deadline it shortens the grace of pods that are alive.
func (a *Agent) Decide(c Copy, now time.Time) Decision {
	begin := a.begin(min(a.fenceAfter/2, c.Pods.Grace+a.slack()))
	last := a.Deadline().Add(-a.lead())
	half := begin.Add(max(0, last.Sub(begin)) / 2)
	soon := now.Add(min(max(a.lead()/4, 200*time.Millisecond), 2*time.Second))
	untouched := !c.Stopped && !c.Going
	switch {
	case c.Stopped && !c.Suspended && !c.Going:
		return Decision{Action: Delete, Reason: ResumedByOthers, Again: soon}
	case c.Rank == Outdated && untouched:
		return Decision{Action: Suspend, Reason: OldAttempt, Again: soon}
	case c.Rank == Repeated && untouched:
		return Decision{Action: Suspend, Reason: SecondCopy, Again: soon}
	case !c.Started && untouched && a.isLate(c.Challenge, now):
		return Decision{Action: Suspend, Reason: LateCreation, Again: soon}
	case now.Before(a.StopsFrom()):
		return Decision{Again: a.StopsFrom()}
	case now.Before(begin):
		// Until then, pods with a longer grace may be created.
		return Decision{Again: earlier(begin, now.Add(a.Interval()))}
	case !c.Going && (!c.Stopped || c.StoppedFor != a.Answer()):
		return Decision{Action: Suspend, Reason: Silence, Urgent: !now.Before(half), Again: soon}
	case c.Pods.Alive == 0:
		return Decision{Again: now.Add(a.Interval())} // A pod may still be created.
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

// isLate says whether a copy must not start. A challenge of a later run comes from a lease that was deleted.
func (a *Agent) isLate(c Challenge, now time.Time) bool {
	return a.Admits(c, now) == Refused || a.Open(now) && c.Run > a.latest.Run
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
