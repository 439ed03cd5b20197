// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// job is one TrainJob of the hub, which goes between this worker and another one, in the virtual time of a sim. Its creations are sent again
// and again until the hub sees a copy, and arrive whenever they like.
type job struct {
	*sim
	// rule is what replicas make of a standing.
	rule  func(w *watcher, v version) Standing
	store version // what the worker has, or had last
	// versions and copies that there have been.
	versions, copies int
	// attempt of the hub, and whether it is here: what may run.
	attempt int64
	here    bool
	// sawCopy: the hub knows that the attempt has a copy. wordAt is when it read its last word.
	sawCopy  bool
	word     Challenge
	wordAt   time.Duration
	watchers map[int]*watcher
	started  map[int]bool
	// accepted counts second copies that were let run after the hub had seen them, refused those that were not.
	accepted, refused int
	violation         string
}

// version of the copy.
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

// watcher is what a life of a replica knows of the copy: all versions since it began, in order, but late.
type watcher struct {
	attempts Attempts
	coming   []version
	shown    version
	first    map[int64]Challenge
}

// change writes a version, and tells the replicas and the hub.
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

// next takes in the next version.
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

// list is how a replica begins, before it reads the lease.
func (j *job) list(r *replica) {
	w := &watcher{first: map[int64]Challenge{}}
	j.watchers[r.id] = w
	if j.store.number > 0 && !j.store.gone {
		w.coming = []version{j.store}
		w.next(j.local(r))
	}
}

// gate is asked by each replica, with what it has seen.
func (j *job) gate(r *replica) {
	w := j.watchers[r.id]
	v := w.shown
	if v.number == 0 || v.gone || v.stopped {
		return
	}
	switch standing, admission := j.rule(w, v), r.agent.Admits(v.challenge, j.local(r)); {
	case standing == Outdated || admission == NotYet:
	case standing == Repeated || admission == Refused:
		if standing == Repeated {
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

// start lets pods run, if the copy is still there.
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

// place begins an attempt here.
func (j *job) place() {
	j.attempt++
	j.here, j.sawCopy = true, false
	j.create(j.attempt)
}

// create sends a creation, and another one if the hub hears nothing of it.
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

// stamp is the hub's last word, while that is young. It was read some time before.
func (j *job) stamp() (Challenge, bool) {
	if j.lastWord != j.word {
		j.word, j.wordAt = j.lastWord, j.now
	}
	return j.word, !j.word.IsZero() && j.now < j.wordAt+fence/2
}

// look is what the hub does when it sees the copy: it resumes the current one, some time later evicts it, and deletes others.
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

// evict deletes the copy, sees that it is gone, and has the job run elsewhere for a while.
func (j *job) evict() {
	if j.store.attempt == j.attempt {
		j.delete(j.store.copy)
	}
	j.here = false
	j.after(j.upTo(2*fence), j.place)
}

func newJob(t *testing.T, seed uint64, rule func(*watcher, version) Standing) *job {
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

// TestCreationSentTwice: a creation that was sent again arrives when the first copy of its attempt has been deleted and the job runs
// elsewhere. It does not run. Without the rule, or with one that asks only for a later challenge, it does.
func TestCreationSentTwice(t *testing.T) {
	cases := map[string]struct {
		rule func(w *watcher, v version) Standing
		safe bool
	}{
		"Rule": {
			rule: func(w *watcher, v version) Standing { return w.attempts.Standing(v.copyState(), start) }, safe: true,
		},
		"NoMemory": {rule: func(*watcher, version) Standing { return Current }},
		"NewerIsCurrent": {rule: func(w *watcher, v version) Standing {
			standing := w.attempts.Standing(v.copyState(), start)
			if standing == Repeated && v.challenge.Compare(w.first[v.attempt]) > 0 {
				return Current
			}
			return standing
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
