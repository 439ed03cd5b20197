// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"container/list"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// AttemptRetention is the least time for which Attempts remembers the last copy of a hub TrainJob. A longer fenceAfter
	// counts instead, because until then the challenge of a creation that was sent while the copy was there may be young
	// enough.
	AttemptRetention = time.Hour
	// MaxGone is how many hub TrainJobs without a copy Attempts remembers at most. Beyond that it forgets the oldest ones
	// of the namespace that has most. So a user who creates and deletes many copies in one namespace harms no other
	// namespace.
	MaxGone = 100_000

	// sweepInterval is the least time between two searches for attempts to forget.
	sweepInterval = time.Minute
)

// Attempts remembers for each hub TrainJob the highest attempt and the first copy of that attempt. A creation that was
// sent twice can arrive twice, the second time when the first copy was deleted and the job runs elsewhere. The zero
// value is ready for use.
//
// Labels and annotations say what a copy is, and on some workers users can write them. So what a copy says counts only
// in its namespace, and only the last version of a copy counts.
type Attempts struct {
	known map[Origin]*attempt
	// gone has the attempts in known that have no copy, by namespace. The attempt that was seen last is at the end. absent
	// is their number.
	gone   map[string]*list.List
	absent int
	// retention is how long Attempts remembers an attempt without a copy, if that is longer than AttemptRetention.
	retention time.Duration
	// sweepAt is when sweep looks again for attempts to forget.
	sweepAt time.Time
}

// Origin is the hub TrainJob of a copy. Hub and UID come from the labels of the copy. The namespace and the name are
// also the copy's own.
type Origin struct {
	Hub, Namespace, Name string
	UID                  types.UID
}

// attempt is the highest attempt of a hub TrainJob.
type attempt struct {
	origin Origin
	// copy is the UID of the copy that has the attempt. number is the attempt that this copy says now. before is the
	// highest attempt of earlier copies. It is greater than number only if somebody changed the mark of the copy.
	copy           types.UID
	number, before int64
	// second is the UID of a later copy of the attempt. stamped is the least challenge that was seen on that copy. stopped
	// says whether that copy was seen with the mark of a stopped copy.
	second  types.UID
	stamped Challenge
	stopped bool
	// element of gone, nil if a copy of the hub TrainJob exists. at is when a copy was last seen.
	element *list.Element
	at      time.Time
}

// CopyState is what the agent reads of a copy.
type CopyState struct {
	Origin Origin
	// Copy is the UID of the copy.
	Copy types.UID
	// Attempt is the value of the copy's mark. 0: there is none.
	Attempt int64
	// Fenced: the failover of the copy is Fenced.
	Fenced bool
	// Challenge is the hub's stamp on the copy. Stopped: an agent has marked the copy as stopped.
	Challenge Challenge
	Stopped   bool
}

// Rank is what a copy is among the copies of its hub TrainJob that were seen.
type Rank int

// The ranks.
const (
	// Current: no other copy keeps this copy from running.
	Current Rank = iota
	// Repeated: another copy has the same attempt, and the hub has not stamped this copy since it was first seen.
	Repeated
	// Outdated: a higher attempt was seen.
	Outdated
)

// String names the rank, for logs and tests.
func (r Rank) String() string { return [...]string{"Current", "Repeated", "Outdated"}[r] }

// Keep makes Attempts remember for at least a time.
func (a *Attempts) Keep(retention time.Duration) { a.retention = max(a.retention, retention) }

// Rank is the rank of a copy that exists or was just deleted. The caller may have read an older version of the
// copy than Here has.
func (a *Attempts) Rank(s CopyState, now time.Time) Rank {
	return a.see(s, now).rank(s)
}

// Later is the higher attempt that makes a copy Outdated, 0 if the copy is not Outdated.
func (a *Attempts) Later(s CopyState, now time.Time) int64 {
	if e := a.see(s, now); e.rank(s) == Outdated {
		return e.highest()
	}
	return 0
}

// Here records that a copy exists. The versions of a copy must come in order: if a mark disappears or the challenge
// grows, the hub has seen this very copy and wants it to run. Here returns true if that makes the copy Current.
func (a *Attempts) Here(s CopyState, now time.Time) (accepted bool) {
	e := a.see(s, now)
	a.back(e)
	if s.Copy == e.copy && s.Attempt > 0 {
		e.number = s.Attempt // Somebody may have changed it, and changed it back.
	}
	if e.rank(s) != Repeated {
		return false
	}
	if e.stopped && !s.Stopped || s.Challenge.Compare(e.stamped) > 0 {
		e.copy, e.number = s.Copy, s.Attempt
		e.second, e.stamped, e.stopped = "", Challenge{}, false
		return true
	}
	e.stopped = e.stopped || s.Stopped
	return false
}

// Gone records that a copy does not exist any more.
func (a *Attempts) Gone(s CopyState, now time.Time) {
	if e := a.see(s, now); e.element == nil {
		a.retire(e)
	}
}

// see returns what Attempts knows of the hub TrainJob of a copy.
func (a *Attempts) see(s CopyState, now time.Time) *attempt {
	a.sweep(now)
	e, ok := a.known[s.Origin]
	if !ok {
		e = &attempt{origin: s.Origin, copy: s.Copy, number: s.Attempt}
		a.known[s.Origin] = e
		a.retire(e)
	}
	e.at = now
	if e.element != nil {
		a.gone[s.Origin.Namespace].MoveToBack(e.element)
	}
	switch {
	case s.Copy == e.copy: // Here knows whether this version of the copy is the last one.
	case s.Attempt > e.highest():
		e.before, e.number, e.copy = e.highest(), s.Attempt, s.Copy
		e.second, e.stamped, e.stopped = "", Challenge{}, false
	case s.Attempt < e.highest():
	case !s.Fenced: // The hub does not stamp it.
		e.number, e.copy = s.Attempt, s.Copy
	case s.Copy != e.second:
		e.second, e.stamped, e.stopped = s.Copy, s.Challenge, false
	case s.Challenge.Compare(e.stamped) < 0: // It is an earlier version.
		e.stamped = s.Challenge
	}
	return e
}

func (e *attempt) highest() int64 { return max(e.number, e.before) }

func (e *attempt) rank(s CopyState) Rank {
	its := s.Attempt
	if s.Copy == e.copy {
		its = e.number
	}
	switch {
	case its < e.highest():
		return Outdated
	case s.Copy != e.copy:
		return Repeated
	default:
		return Current
	}
}

// retire adds an attempt that has no copy to gone.
func (a *Attempts) retire(e *attempt) {
	if a.absent >= MaxGone {
		a.shed()
	}
	namespace := e.origin.Namespace
	if a.gone[namespace] == nil {
		a.gone[namespace] = list.New()
	}
	e.element = a.gone[namespace].PushBack(e)
	a.absent++
}

// back removes an attempt that has a copy from gone.
func (a *Attempts) back(e *attempt) {
	if e.element == nil {
		return
	}
	namespace := e.origin.Namespace
	a.gone[namespace].Remove(e.element)
	if a.gone[namespace].Len() == 0 {
		delete(a.gone, namespace)
	}
	e.element = nil
	a.absent--
}

// shed forgets the oldest tenth of the namespace that has most attempts in gone.
func (a *Attempts) shed() {
	var most *list.List
	for _, one := range a.gone {
		if most == nil || one.Len() > most.Len() {
			most = one
		}
	}
	for range most.Len()/10 + 1 {
		a.forget(most.Front().Value.(*attempt))
	}
}

// sweep forgets attempts that have had no copy for long. It works at most once in sweepInterval.
func (a *Attempts) sweep(now time.Time) {
	if a.known == nil {
		a.known, a.gone = map[Origin]*attempt{}, map[string]*list.List{}
	}
	if now.Before(a.sweepAt) {
		return
	}
	a.sweepAt = now.Add(sweepInterval)
	retention := max(AttemptRetention, a.retention)
	for _, one := range a.gone {
		for first := one.Front(); first != nil && now.Sub(first.Value.(*attempt).at) > retention; first = one.Front() {
			a.forget(first.Value.(*attempt))
		}
	}
}

func (a *Attempts) forget(e *attempt) {
	a.back(e)
	delete(a.known, e.origin)
}
