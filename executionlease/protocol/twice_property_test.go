// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// job is one TrainJob of the hub in the virtual time of a sim. It moves between this worker and another worker. The hub
// repeats the creations until it sees a copy, and they arrive at random times.
type job struct {
	*sim
	// rule decides about a version, from what a replica knows.
	rule  func(w *watcher, v version) Rank
	store version // What the worker has, or had last.
	// versions and copies count all that there have been.
	versions, copies int
	// attempt is the hub's. here says whether it may run on this worker.
	attempt int64
	here    bool
	// sawCopy: the hub knows that the attempt has a copy. wordAt is when the hub read the challenge of its last answer.
	sawCopy  bool
	word     Challenge
	wordAt   time.Duration
	watchers map[int]*watcher
	started  map[int]bool
	// accepted counts second copies that ran after the hub had seen them. refused counts refusals of second copies.
	accepted, refused int
	violation         string
}

type version struct {
	number, copy  int
	attempt       int64
	challenge     Challenge
	stopped, gone bool
}

func (v version) copyState() CopyState {
	return CopyState{
		Origin: originOf("origin"), Copy: types.UID(fmt.Sprint(v.copy)), Attempt: v.attempt, Fenced: true,
		Challenge: v.challenge, Stopped: v.stopped,
	}
}

// watcher is what a replica knows of the copy: all versions since the replica began, in order, but late.
type watcher struct {
	attempts Attempts
	coming   []version
	shown    version
	first    map[int64]Challenge
}

// change writes a version, and sends it to the replicas and the hub.
func (j *job) change(v version) {
	j.versions++
	v.number = j.versions
	j.store = v
	for _, r := range j.replicas {
		w := j.watchers[r.id]
		w.coming = append(w.coming, v)
		j.to(r, j.delay(), func() { w.next(j.local(r)); j.gate(r) })
	}
	j.after(j.upTo(fence/5), j.look)
}

func (w *watcher) next(now time.Time) {
	w.shown, w.coming = w.coming[0], w.coming[1:]
	if w.first[w.shown.attempt].IsZero() {
		w.first[w.shown.attempt] = w.shown.challenge
	}
	if w.shown.gone {
		w.attempts.Gone(w.shown.copyState(), now)
	} else {
		w.attempts.Here(w.shown.copyState(), now)
	}
}

// list is what a replica does first, before it reads the lease.
func (j *job) list(r *replica) {
	w := &watcher{first: map[int64]Challenge{}}
	j.watchers[r.id] = w
	if j.store.number > 0 && !j.store.gone {
		w.coming = []version{j.store}
		w.next(j.local(r))
	}
}

// gate asks each replica, which decides from what it has seen.
func (j *job) gate(r *replica) {
	w := j.watchers[r.id]
	v := w.shown
	if v.number == 0 || v.gone || v.stopped {
		return
	}
	switch rank, admission := j.rule(w, v), r.agent.Admits(v.challenge, j.local(r)); {
	case rank == Outdated || admission == NotYet:
	case rank == Repeated || admission == Refused:
		if rank == Repeated {
			j.refused++
		}
		j.after(j.delay(), func() {
			if j.store.number == v.number {
				v.stopped = true
				j.change(v)
			}
		})
	default:
		j.start(w, v)
	}
}

// start starts pods if the copy still exists.
func (j *job) start(w *watcher, v version) {
	if j.store.copy != v.copy || j.store.gone || j.started[v.copy] {
		return
	}
	j.started[v.copy] = true
	if w.first[v.attempt] != v.challenge {
		j.accepted++
	}
	if !j.here || v.attempt != j.attempt {
		j.violation = fmt.Sprintf("at %s a copy of attempt %d starts, and the job is elsewhere (attempt %d)", j.now, v.attempt, j.attempt)
	}
}

// place begins an attempt on this worker.
func (j *job) place() {
	j.attempt++
	j.here, j.sawCopy = true, false
	j.create(j.attempt)
}

// create sends a creation, and repeats it if the hub sees no copy.
func (j *job) create(attempt int64) {
	if attempt != j.attempt || !j.here || j.sawCopy {
		return
	}
	j.after(j.upTo(fence/10), func() { j.create(attempt) })
	challenge, ok := j.stamp()
	if !ok {
		return
	}
	j.after(j.delay(), func() {
		if j.store.number == 0 || j.store.gone {
			j.copies++
			j.change(version{copy: j.copies, attempt: attempt, challenge: challenge})
		}
	})
}

// stamp is the hub's last answer while it is young. The hub has read it some time before.
func (j *job) stamp() (Challenge, bool) {
	if j.lastWord != j.word {
		j.word, j.wordAt = j.lastWord, j.now
	}
	return j.word, !j.word.IsZero() && j.now < j.wordAt+fence/2
}

// look is what the hub does with a copy: it resumes the current one, evicts it some time later, and deletes the others.
func (j *job) look() {
	v := j.store
	switch {
	case v.gone:
	case v.attempt != j.attempt || !j.here:
		j.after(j.delay(), func() { j.delete(v.copy) })
	case v.stopped:
		challenge, ok := j.stamp()
		if !ok {
			j.after(time.Second, j.look)
			return
		}
		j.after(j.delay(), func() {
			if j.store.number == v.number {
				v.stopped, v.challenge = false, challenge
				j.change(v)
			}
		})
	}
	if !v.gone && v.attempt == j.attempt && !j.sawCopy {
		j.sawCopy = true
		j.after(j.upTo(fence/2), j.evict)
	}
}

func (j *job) delete(copy int) {
	if v := j.store; v.copy == copy && !v.gone {
		v.gone = true
		j.change(v)
	}
}

// evict deletes the copy, waits until it is gone, and runs the job elsewhere for a while.
func (j *job) evict() {
	if j.store.attempt == j.attempt {
		j.delete(j.store.copy)
	}
	j.here = false
	j.after(j.upTo(2*fence), j.place)
}

func newJob(t *testing.T, seed uint64, rule func(*watcher, version) Rank) *job {
	j := &job{sim: newSim(t, seed, false), rule: rule, watchers: map[int]*watcher{}, started: map[int]bool{}}
	for _, r := range j.replicas {
		j.list(r)
	}
	j.restarted = j.list
	j.after(0, j.disturb)
	j.after(fence/10, j.place)
	var ask func()
	ask = func() {
		j.after(time.Second, ask)
		for _, r := range j.replicas {
			if r.pausedUntil <= j.now {
				j.gate(r)
			}
		}
	}
	j.after(0, ask)
	return j
}

// TestCreationSentTwice: a repeated creation arrives when the first copy of its attempt was deleted and the job runs
// elsewhere. The second copy does not run. It runs without the rule, or with a rule that only needs a later challenge.
func TestCreationSentTwice(t *testing.T) {
	cases := map[string]struct {
		rule func(w *watcher, v version) Rank
		safe bool
	}{
		"Rule": {
			rule: func(w *watcher, v version) Rank { return w.attempts.Rank(v.copyState(), start) }, safe: true,
		},
		"NoMemory": {rule: func(*watcher, version) Rank { return Current }},
		"NewerIsCurrent": {rule: func(w *watcher, v version) Rank {
			rank := w.attempts.Rank(v.copyState(), start)
			if rank == Repeated && v.challenge.Compare(w.first[v.attempt]) > 0 {
				return Current
			}
			return rank
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var starts, accepted, refused, violations int
			for seed := range uint64(seeds) {
				j := newJob(t, seed, tc.rule)
				j.run(40*fence, func() {})
				starts, accepted, refused = starts+len(j.started), accepted+j.accepted, refused+j.refused
				if j.violation == "" {
					continue
				}
				if violations++; !tc.safe {
					break
				}
				t.Errorf("seed %d: %s", seed, j.violation)
			}
			t.Logf("%d copies started, %d of them not at first sight; second copies were refused %d times", starts, accepted, refused)
			if tc.safe && (starts < 10*seeds || accepted == 0 || refused == 0) {
				t.Error("too little has happened to prove anything")
			}
			if !tc.safe && violations == 0 {
				t.Error("nothing breaks without the rule, so it is not tested")
			}
		})
	}
}
