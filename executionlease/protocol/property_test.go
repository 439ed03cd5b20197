// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// drift is how much faster or slower than real time a clock may run. A hub multiplies fenceAfter by allowance.
const (
	drift     = 0.009
	allowance = 1.02
	// changeOfLeader is the longest time without a leader.
	changeOfLeader = 17 * time.Second
)

// sim is a lease, its replicas, a hub and one copy, in virtual time. Messages take a random time, may be lost, may come
// twice, and may overtake each other. Replicas stop for a while, lose their memory, and lead without knowing that
// another replica leads.
type sim struct {
	t        *testing.T
	rand     *rand.Rand
	calm     bool // No message is lost, and replicas know what the last leader knew.
	now      time.Duration
	events   events
	lease    snapshot
	replicas []*replica
	// committed is when a challenge was written. answered has the challenges that the hub has answered.
	committed map[Challenge]time.Duration
	answered  map[Challenge]bool
	lastWord  Challenge
	// silentFrom is when the hub falls silent for good. changes counts the changes of leader since then.
	silentFrom time.Duration
	changes    int
	copy       world
	stops      int
	// restarted, if set, gets each replica that has lost its memory.
	restarted func(*replica)
}

type snapshot struct {
	version, run      int64
	owner             int
	challenge, answer Challenge
}

// world is the true state of the copy.
type world struct {
	Copy
	// dead: no controller acts on a suspension or a deletion. ends is when the copy's pods end.
	dead  bool
	grace time.Duration
	ends  time.Duration
	alive bool
}

type replica struct {
	id          int
	agent       Agent
	rate        float64
	pausedUntil time.Duration
	life        int // Messages to an earlier life are lost.
	leading     bool
	taken       bool
	run, number int64
	known       snapshot
}

func (s *sim) local(r *replica) time.Time {
	return start.Add(time.Duration(r.id)*1000*time.Hour + time.Duration(float64(s.now)*r.rate))
}

type simEvent struct {
	at time.Duration
	do func()
}

type events []simEvent

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(simEvent)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (s *sim) after(d time.Duration, do func()) { heap.Push(&s.events, simEvent{s.now + d, do}) }

// to delivers a message to a replica, unless the replica has restarted since. A stopped replica reads it when it goes
// on.
func (s *sim) to(r *replica, d time.Duration, do func()) {
	life := r.life
	var deliver func()
	deliver = func() {
		switch {
		case life != r.life:
		case r.pausedUntil > s.now:
			s.after(r.pausedUntil-s.now, deliver)
		default:
			do()
		}
	}
	s.after(d, deliver)
}

func (s *sim) delay() time.Duration {
	if s.calm || s.rand.IntN(10) > 0 {
		return s.upTo(200 * time.Millisecond)
	}
	return s.upTo(2 * fence)
}

func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.rand.Int64N(int64(d)) + 1) }

func (s *sim) lost() bool { return !s.calm && s.rand.IntN(10) == 0 }

func (s *sim) read(r *replica, then func(snapshot)) {
	sent := s.local(r)
	s.after(s.delay(), func() {
		got := s.lease
		if s.lost() {
			return
		}
		s.to(r, s.delay(), func() {
			r.agent.Answered(got.answer, fence, s.local(r))
			r.agent.Shown(got.challenge, sent)
			r.known = got
			then(got)
		})
	})
}

// write writes the next challenge of a replica that considers itself the leader.
func (s *sim) write(r *replica) {
	r.number++
	c, base, sent := of(r.run, r.number), r.known, s.local(r)
	s.after(s.delay(), func() {
		if s.lease.version != base.version {
			s.to(r, s.delay(), func() { s.read(r, func(snapshot) {}) })
			return
		}
		s.lease.version++
		s.lease.run, s.lease.owner, s.lease.challenge = c.Run, r.id*1000+r.life, c
		if _, twice := s.committed[c]; twice {
			s.t.Fatalf("challenge %s was written twice", c)
		}
		s.committed[c] = s.now
		s.changed()
		if got := s.lease; !s.lost() {
			s.to(r, s.delay(), func() {
				r.agent.Issued(c, sent)
				r.agent.Answered(got.answer, fence, s.local(r))
				r.known = got
			})
		}
	})
}

// changed sends the lease to all watches.
func (s *sim) changed() {
	got := s.lease
	for _, r := range s.replicas {
		if !s.lost() {
			s.to(r, s.delay(), func() {
				r.agent.See(got.challenge)
				r.agent.Answered(got.answer, fence, s.local(r))
				if got.version > r.known.version {
					r.known = got
				}
				if !r.leading && r.agent.Unmarked() {
					s.read(r, func(snapshot) {})
				}
			})
		}
	}
	if got.answer != got.challenge {
		s.after(s.delay(), func() { s.answer(got.challenge) })
	}
}

// answer answers what the hub has read, and sometimes answers twice.
func (s *sim) answer(c Challenge) {
	if s.now >= s.silentFrom || c.IsZero() {
		return
	}
	s.answered[c] = true
	if c.Compare(s.lastWord) > 0 {
		s.lastWord = c
	}
	for range 1 + s.rand.IntN(2) {
		s.after(s.delay(), func() {
			if s.lost() || s.calm && c.Compare(s.lease.answer) < 0 {
				return
			}
			s.lease.version++
			s.lease.answer = c
			s.changed()
		})
	}
}

// live is what a replica does each interval of its life.
func (s *sim) live(r *replica) {
	s.to(r, r.agent.Interval(), func() { s.live(r) })
	s.tick(r)
}

func (s *sim) tick(r *replica) {
	switch {
	case !r.leading:
		s.read(r, func(snapshot) {})
	case !r.taken || r.known.run >= r.run && r.known.owner != r.id*1000+r.life:
		s.read(r, func(got snapshot) {
			r.run, r.number, r.taken = max(got.run, r.run)+1, 0, true
			r.agent.TakeOver(r.run, s.local(r))
			s.write(r)
			s.look(r, r.run)
		})
	default:
		s.write(r)
	}
}

// look is what a leader does about the copy during its run.
func (s *sim) look(r *replica, run int64) {
	if !r.leading || r.run != run {
		return
	}
	s.copy.settle(s.now)
	now := s.local(r)
	d := r.agent.Decide(s.copy.Copy, now)
	if d.Action == Suspend || d.Action == Delete {
		s.stops++
	}
	s.copy.apply(d, r.agent.Answer(), s.now)
	wait := time.Second
	if !d.Again.IsZero() {
		wait = min(max(d.Again.Sub(now), time.Millisecond), fence)
	}
	s.to(r, wait, func() { s.look(r, run) })
}

func (s *sim) restart(r *replica) {
	*r = replica{id: r.id, rate: r.rate, life: r.life + 1}
	if s.restarted != nil {
		s.restarted(r)
	}
	s.live(r)
}

func (w *world) settle(now time.Duration) {
	if w.alive && w.ends != 0 && now >= w.ends {
		w.alive, w.Pods = false, Pods{}
	}
}

func (w *world) apply(d Decision, answer string, now time.Duration) {
	end := func(grace time.Duration) {
		w.Pods.Staying, w.Pods.Grace = 0, min(grace, w.grace)
		if w.ends == 0 || now+grace < w.ends {
			w.ends = now + grace
		}
	}
	switch d.Action {
	case Suspend:
		w.Suspended, w.Stopped, w.StoppedFor = true, true, answer
	case Delete:
		w.Going = true
	case Shorten:
		end(2 * time.Second)
		return
	case Leave:
		return
	}
	if !w.dead && w.Pods.Staying > 0 {
		end(w.grace)
	}
}

// disturb changes the leader, with a gap without one, stops replicas and restarts them.
func (s *sim) disturb() {
	s.after(s.upTo(fence), s.disturb)
	r := s.replicas[s.rand.IntN(len(s.replicas))]
	if !s.calm && s.rand.IntN(2) == 0 {
		r.pausedUntil = s.now + s.upTo(fence)
	}
	if s.calm || s.rand.IntN(4) > 0 || s.changes >= MaxHandovers {
		return
	}
	if s.now >= s.silentFrom {
		s.changes++
	}
	for _, other := range s.replicas {
		if s.rand.IntN(3) > 0 || s.now >= s.silentFrom { // Sometimes an old leader does not notice.
			other.leading, other.taken = false, false
		}
		if s.rand.IntN(3) == 0 {
			s.restart(other)
		}
	}
	s.after(s.upTo(changeOfLeader), func() {
		if s.now >= s.silentFrom {
			r.pausedUntil = 0
		}
		r.leading, r.taken = true, false
		s.tick(r)
	})
}

// check is the property: the lease is Valid, and a creation is admitted, only for a challenge that the hub has answered
// and that is younger than fenceAfter.
func (s *sim) check() {
	fresh := func(c Challenge) bool {
		return s.now < s.committed[c]+time.Duration(allowance*float64(fence))
	}
	for _, r := range s.replicas {
		now := s.local(r)
		if r.agent.State(now) == v1alpha1.LeaseValid {
			if c := ParseChallenge(r.agent.Answer()); !s.answered[c] || !fresh(c) {
				s.t.Fatalf("at %s, replica %d thinks that the lease is valid by %s, answered: %t, written at %s",
					s.now, r.id, c, s.answered[c], s.committed[c])
			}
		}
		for c := range s.committed {
			if s.answered[c] && r.agent.Admits(c, now) == Admitted && !fresh(c) {
				s.t.Fatalf("at %s, replica %d admits a copy with %s, written at %s", s.now, r.id, c, s.committed[c])
			}
		}
	}
}

func newSim(t *testing.T, seed uint64, calm bool) *sim {
	s := &sim{
		t: t, rand: rand.New(rand.NewPCG(seed, 5)), calm: calm, committed: map[Challenge]time.Duration{}, answered: map[Challenge]bool{},
		silentFrom: 1000 * time.Hour,
	}
	for id := range 3 {
		r := &replica{id: id, rate: 1 + drift*(2*s.rand.Float64()-1)}
		s.replicas = append(s.replicas, r)
		r.leading = id == 0
		s.live(r)
	}
	grace := s.upTo(2 * fence)
	s.copy = world{alive: true, grace: grace, dead: s.rand.IntN(3) == 0}
	s.copy.Copy = Copy{Started: true, Pods: Pods{Alive: 2, Staying: 2, Grace: grace}}
	return s
}

func (s *sim) run(until time.Duration, each func()) {
	for len(s.events) > 0 && s.now < until {
		next := heap.Pop(&s.events).(simEvent)
		s.now = next.at
		next.do()
		each()
	}
}

const seeds = 60

// TestNoAgeIsUnderestimated: messages are lost, late, repeated or overtaken, and replicas stop and lose their memory.
// The lease is Valid, and a creation is admitted, only after a recent sign of life.
func TestNoAgeIsUnderestimated(t *testing.T) {
	valid := 0
	for seed := range uint64(seeds) {
		s := newSim(t, seed, false)
		s.after(0, s.disturb)
		s.run(20*fence, func() {
			if s.rand.IntN(4) == 0 {
				s.check()
			}
			if s.replicas[0].agent.State(s.local(s.replicas[0])) == v1alpha1.LeaseValid {
				valid++
			}
		})
	}
	if valid == 0 {
		t.Error("the lease was never valid: nothing was tested")
	}
}

// TestSilenceEndsPods: when a hub falls silent, the pods end in time: fenceAfter after the last answered challenge if
// the leader stays, and within the bound of this package's doc if the leader changes.
func TestSilenceEndsPods(t *testing.T) {
	for seed := range uint64(seeds) {
		for _, change := range []bool{false, true} {
			t.Run(fmt.Sprintf("Seed%d/Changes=%t", seed, change), func(t *testing.T) {
				s := newSim(t, seed, true)
				s.silentFrom = fence + s.upTo(fence)
				bound := time.Duration(allowance * float64(fence))
				if change {
					bound += MaxHandovers*(changeOfLeader+fence/10) + Slack
					s.after(s.silentFrom-time.Second, s.changing)
				}
				s.run(10*fence, func() {
					s.copy.settle(s.now)
					if s.copy.alive && s.now > s.committed[s.lastWord]+bound {
						t.Fatalf("at %s there are pods: the last answer was to %s, written at %s; %d changes of leader, copy %+v",
							s.now, s.lastWord, s.committed[s.lastWord], s.changes, s.copy)
					}
				})
			})
		}
	}
}

// changing changes the leader up to MaxHandovers times. Some of the new leaders have lost their memory.
func (s *sim) changing() {
	if s.changes == MaxHandovers {
		return
	}
	s.changes++
	s.after(s.upTo(fence), s.changing)
	for _, r := range s.replicas {
		r.leading, r.taken = false, false
	}
	r := s.replicas[s.rand.IntN(len(s.replicas))]
	if s.rand.IntN(2) == 0 {
		s.restart(r)
	}
	s.after(s.upTo(changeOfLeader), func() {
		for _, other := range s.replicas {
			other.leading, other.taken = false, false
		}
		r.leading = true
		s.tick(r)
	})
}

// TestWorkingHubStopsNothing: while the hub answers, a standby may become the leader, and no copy is stopped.
func TestWorkingHubStopsNothing(t *testing.T) {
	for seed := range uint64(seeds) {
		s := newSim(t, seed, true)
		for n := range 20 {
			s.after(time.Duration(n+1)*fence/2+s.upTo(fence/4), func() {
				for _, r := range s.replicas {
					r.leading, r.taken = false, false
				}
				r := s.replicas[s.rand.IntN(len(s.replicas))]
				s.after(s.upTo(changeOfLeader), func() {
					r.leading = true
					s.tick(r)
				})
			})
		}
		s.run(12*fence, func() {})
		if s.stops > 0 {
			t.Fatalf("seed %d: the copy was stopped", seed)
		}
	}
}
