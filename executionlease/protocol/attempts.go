// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"container/list"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// AttemptMemory is how long, at least, Attempts remembers which copy of a hub TrainJob was here last. Where
	// fenceAfter is longer, that counts: until then a creation that was sent while the copy was there may still carry a
	// challenge that is young enough.
	AttemptMemory = time.Hour
	// MaxGone is how many hub TrainJobs without a copy Attempts remembers at most. Beyond that it forgets the oldest
	// ones of the namespace that has most of them, so who creates and deletes many copies in one namespace costs the
	// others nothing.
	MaxGone = 100_000

	// sweepInterval is the least time between two searches for what is to be forgotten.
	sweepInterval = time.Minute
)

// Attempts remembers the highest attempt that was seen of each hub TrainJob, and which copy was the first of it. A
// creation that was sent twice can arrive twice, the second time when the first copy has been deleted and the job runs
// elsewhere. The zero value is ready for use.
//
// Labels and annotations say what a copy is, and on some workers users can write these. So nothing that a copy says
// counts outside of its namespace, and only as long as it says so: of one copy the last version counts.
type Attempts struct {
	known map[Origin]*attempt
	// gone has those of known of which no copy is there, by namespace, the one that was seen last at the end. absent is
	// how many there are.
	gone   map[string]*list.List
	absent int
	// memory is how long what is not there any more is remembered, if that is longer than AttemptMemory.
	memory time.Duration
	// sweepAt is when to look for old ones next.
	sweepAt time.Time
}

// Origin is the hub TrainJob of a copy. Hub and UID stand in the labels of the copy; namespace and name are those of
// the copy itself.
type Origin struct {
	Hub, Namespace, Name string
	UID                  types.UID
}

// attempt is the highest one of a hub TrainJob.
type attempt struct {
	origin Origin
	// copy is the UID of the copy that has the attempt, and number what it says. before is the highest attempt of
	// earlier copies. It is greater than number only if the mark of the copy was changed after it had come.
	copy           types.UID
	number, before int64
	// second is the UID of another one that has come later, stamped the least challenge that was seen on it, and
	// stopped whether it was seen to be marked as stopped.
	second  types.UID
	stamped Challenge
	stopped bool
	// place among those that are gone, nil if a copy of the hub TrainJob exists. at is when one was seen last.
	place *list.Element
	at    time.Time
}

// CopyState is what is seen of a copy.
type CopyState struct {
	Origin Origin
	// Copy is the UID of the copy.
	Copy types.UID
	// Attempt that it says it has. 0: it says none.
	Attempt int64
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

// Standing is that of a copy that exists, or did until now. It may be told of an earlier version of the copy than Here
// was.
func (a *Attempts) Standing(s CopyState, now time.Time) Standing {
	return a.see(s, now).standing(s)
}

// Later is the attempt because of which a copy is Outdated, 0 if it is not.
func (a *Attempts) Later(s CopyState, now time.Time) int64 {
	if e := a.see(s, now); e.standing(s) == Outdated {
		return e.highest()
	}
	return 0
}

// Here notes that a copy exists. Its versions have to come in order: that a mark which was seen is gone, or that the
// challenge is a later one, says that the hub has seen this very copy and wants it to run. It returns true if that
// makes the copy Current.
func (a *Attempts) Here(s CopyState, now time.Time) (accepted bool) {
	e := a.see(s, now)
	a.back(e)
	if s.Copy == e.copy && s.Attempt > 0 {
		e.number = s.Attempt // It may have been changed, and changed back.
	}
	if e.standing(s) != Repeated {
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

// Gone notes that a copy does not exist any more.
func (a *Attempts) Gone(s CopyState, now time.Time) {
	if e := a.see(s, now); e.place == nil {
		a.retire(e)
	}
}

// see returns what is known of the hub TrainJob of a copy.
func (a *Attempts) see(s CopyState, now time.Time) *attempt {
	a.sweep(now)
	e, ok := a.known[s.Origin]
	if !ok {
		e = &attempt{origin: s.Origin, copy: s.Copy, number: s.Attempt}
		a.known[s.Origin] = e
		a.retire(e)
	}
	e.at = now
	if e.place != nil {
		a.gone[s.Origin.Namespace].MoveToBack(e.place)
	}
	switch {
	case s.Copy == e.copy: // What it says counts if it is the last that it says, which Here knows.
	case s.Attempt > e.highest():
		e.before, e.number, e.copy = e.highest(), s.Attempt, s.Copy
		e.second, e.stamped, e.stopped = "", Challenge{}, false
	case s.Attempt < e.highest():
	case !s.Fenced: // Nobody would stamp it.
		e.number, e.copy = s.Attempt, s.Copy
	case s.Copy != e.second:
		e.second, e.stamped, e.stopped = s.Copy, s.Challenge, false
	case s.Challenge.Compare(e.stamped) < 0: // An earlier version.
		e.stamped = s.Challenge
	}
	return e
}

func (e *attempt) highest() int64 { return max(e.number, e.before) }

func (e *attempt) standing(s CopyState) Standing {
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

// retire puts one of which no copy is there among those that are forgotten some day.
func (a *Attempts) retire(e *attempt) {
	if a.absent >= MaxGone {
		a.shed()
	}
	namespace := e.origin.Namespace
	if a.gone[namespace] == nil {
		a.gone[namespace] = list.New()
	}
	e.place = a.gone[namespace].PushBack(e)
	a.absent++
}

// back takes one of which a copy is there out of those.
func (a *Attempts) back(e *attempt) {
	if e.place == nil {
		return
	}
	namespace := e.origin.Namespace
	a.gone[namespace].Remove(e.place)
	if a.gone[namespace].Len() == 0 {
		delete(a.gone, namespace)
	}
	e.place = nil
	a.absent--
}

// shed forgets the oldest tenth of the namespace that has most.
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

// sweep forgets what has not been there for long, now and then.
func (a *Attempts) sweep(now time.Time) {
	if a.known == nil {
		a.known, a.gone = map[Origin]*attempt{}, map[string]*list.List{}
	}
	if now.Before(a.sweepAt) {
		return
	}
	a.sweepAt = now.Add(sweepInterval)
	memory := max(AttemptMemory, a.memory)
	for _, one := range a.gone {
		for first := one.Front(); first != nil && now.Sub(first.Value.(*attempt).at) > memory; first = one.Front() {
			a.forget(first.Value.(*attempt))
		}
	}
}

func (a *Attempts) forget(e *attempt) {
	a.back(e)
	delete(a.known, e.origin)
}
