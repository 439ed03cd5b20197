// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

func TestPass(t *testing.T) {
	one := func(name string, minute int) made { return made{name: name, pods: 1, gpus: 8, minute: minute} }
	on := func(worker string, m made) made {
		m.on = worker
		return m
	}
	small := func(name, team string) made { return made{name: name, team: team, pods: 1, gpus: 1, minute: 1} }
	cordon := func(s *scene) { s.site("a").Cordoned = true; s.touch(s.site("a")) }
	uncordon := func(s *scene) { s.site("a").Cordoned = false; s.touch(s.site("a")) }
	low := made{name: "y", pods: 1, gpus: 8, priority: -1, on: "b"}
	for name, tc := range map[string]struct {
		reason string
		nodes  []int
		acts   []act
	}{
		"Order": {
			reason: "Priority comes first, then age, then UID.",
			nodes:  []int{1},
			acts: []act{
				{stand: []made{one("running", 0)}, want: []string{"running to a"}},
				{
					stand: []made{one("d", 5), one("c", 5), {name: "b", pods: 1, gpus: 4, minute: 2}, {name: "a", pods: 1, gpus: 8, priority: 1, minute: 9}},
					waits: []string{"a NoFit", "b NoFit", "c NoFit", "d Queued"},
				},
				{end: []string{"running"}, want: []string{"a to a"}, waits: []string{"b NoFit", "c NoFit", "d Queued"}},
				{end: []string{"a"}, want: []string{"b to a"}, waits: []string{"c NoFit", "d Queued"}},
				{end: []string{"b"}, want: []string{"c to a"}, waits: []string{"d NoFit"}},
			},
		},
		"BestEffort": {
			reason: "A job that does not fit lets smaller ones pass.",
			nodes:  []int{2},
			acts: []act{
				{stand: []made{one("running", 0)}, want: []string{"running to a"}},
				{stand: []made{{name: "big", pods: 2, gpus: 8, minute: 1}, one("small", 2)}, want: []string{"small to a"}, waits: []string{"big NoFit"}},
			},
		},
		"Strict": {
			reason: "Only jobs of the same policy are held, and as soon as the first is placed they are not.",
			nodes:  []int{2},
			acts: []act{
				{stand: []made{one("running", 0)}, want: []string{"running to a"}},
				{
					stand: []made{
						{name: "big", team: "strict", pods: 2, gpus: 8, minute: 1}, {name: "small", team: "strict", pods: 1, gpus: 1, minute: 2},
						{name: "big2", team: "strict", pods: 2, gpus: 8, minute: 3}, {name: "other", pods: 1, gpus: 1, minute: 4},
					},
					want: []string{"other to a"}, waits: []string{"big NoFit", "small Queued", "big2 Queued"},
				},
				{end: []string{"running"}, waits: []string{"big NoFit", "small Queued", "big2 Queued"}},
				{end: []string{"other"}, want: []string{"big to a"}, waits: []string{"small NoFit", "big2 Queued"}},
				{leave: []string{"small"}, waits: []string{"big2 NoFit"}},
			},
		},
		"StrictLeaves": {
			reason: "Those behind are looked at when the one that holds them leaves, though no worker changes.",
			nodes:  []int{1},
			acts: []act{
				{stand: []made{{name: "running", pods: 1, gpus: 4}}, want: []string{"running to a"}},
				{
					stand: []made{{name: "big", team: "strict", pods: 1, gpus: 8, minute: 1}, {name: "small", team: "strict", pods: 1, gpus: 1, minute: 2}},
					waits: []string{"big NoFit", "small Queued"},
				},
				{leave: []string{"big"}, want: []string{"small to a"}},
			},
		},
		"StrictWorkerGoes": {
			reason: "Nobody is held any more when the only worker goes that the first could have had.",
			nodes:  []int{1, 2},
			acts: []act{
				{stand: []made{on("b", one("x", 0))}, want: []string{"x to b"}},
				{
					stand: []made{{name: "big", team: "strict", pods: 2, gpus: 8, minute: 1}, {name: "small", team: "strict", pods: 1, gpus: 8, minute: 2}},
					waits: []string{"big NoFit", "small Queued"},
				},
				{change: func(s *scene) { s.remove("b") }, want: []string{"small to a"}, waits: []string{"big NoFit"}},
			},
		},
		"StrictNeverFits": {
			reason: "A job that would not fit if all workers were empty holds nobody, until there is a worker where it would.",
			nodes:  []int{1},
			acts: []act{
				{
					stand: []made{{name: "huge", team: "strict", pods: 2, gpus: 8}, {name: "small", team: "strict", pods: 1, gpus: 1, minute: 1}},
					want:  []string{"small to a"}, waits: []string{"huge NoFit"},
				},
				{
					change: func(s *scene) { s.site("a").grow(node{pool: "a", cpus: 64_000, gpus: 8}) },
					stand:  []made{{name: "small2", team: "strict", pods: 1, gpus: 1, minute: 2}},
					waits:  []string{"huge NoFit", "small2 Queued"},
				},
				{change: cordon, waits: []string{"huge NoFit", "small2 NoFit"}},
			},
		},
		"StrictRejected": {
			reason: "A job that no worker may take holds nobody.",
			nodes:  []int{1},
			acts: []act{
				{
					stand: []made{{name: "refused", team: "strict", pods: 1, gpus: 1, excluded: "a"}, {name: "small", team: "strict", pods: 1, gpus: 1, minute: 1}},
					want:  []string{"small to a"}, waits: []string{"refused Rejected"},
				},
			},
		},
		"Reservation": {
			reason: "After reserveAfter a worker is held: who is behind gets nothing that the job needs, who is before it does, and other workers are free.",
			nodes:  []int{2, 1},
			acts: []act{
				{stand: []made{on("a", one("x", 0)), on("a", one("y", 0)), on("b", one("z", 0))}, minutes: 1, want: []string{"x to a", "y to a", "z to b"}},
				{stand: []made{{name: "big", team: "impatient", pods: 2, gpus: 8, priority: 1, minute: 1}}, waits: []string{"big NoFit"}},
				{minutes: 10, waits: []string{"big Reserved"}, held: []string{"a for big"}},
				{
					end: []string{"x"}, stand: []made{one("late", 11)},
					waits: []string{"big Reserved", "late Queued"}, held: []string{"a for big"},
				},
				{end: []string{"z"}, want: []string{"late to b"}, waits: []string{"big Reserved"}, held: []string{"a for big"}},
				{
					stand: []made{{name: "first", pods: 1, gpus: 8, priority: 2, minute: 12}},
					want:  []string{"first to a"}, waits: []string{"big Reserved"}, held: []string{"a for big"},
				},
				{end: []string{"first", "y"}, want: []string{"big to a"}},
			},
		},
		"ReservationEnds": {
			reason: "What is held is free for others when the job leaves, or the worker may not take it any more.",
			nodes:  []int{2},
			acts: []act{
				{stand: []made{one("x", 0)}, want: []string{"x to a"}},
				{stand: []made{{name: "big", team: "impatient", pods: 2, gpus: 8}}, minutes: 10, waits: []string{"big Reserved"}, held: []string{"a for big"}},
				{stand: []made{one("late", 11)}, waits: []string{"big Reserved", "late Queued"}, held: []string{"a for big"}},
				{leave: []string{"big"}, want: []string{"late to a"}},
				{stand: []made{{name: "big", team: "impatient", pods: 2, gpus: 8}}, waits: []string{"big Reserved"}, held: []string{"a for big"}},
				{change: cordon, waits: []string{"big NoFit"}},
			},
		},
		"ReservationOfTheFirst": {
			reason: "A worker is held for one job, and an older one takes it.",
			nodes:  []int{2},
			acts: []act{
				{stand: []made{one("x", 0)}, want: []string{"x to a"}},
				{stand: []made{{name: "big", team: "impatient", pods: 2, gpus: 8, minute: 1}}, minutes: 15, waits: []string{"big Reserved"}, held: []string{"a for big"}},
				{
					stand: []made{{name: "old", team: "impatient", pods: 2, gpus: 7}},
					waits: []string{"old Reserved", "big NoFit"}, held: []string{"a for old"},
				},
				{leave: []string{"old"}, waits: []string{"big Reserved"}, held: []string{"a for big"}},
			},
		},
		"Crowded": {
			reason: "A worker that has too many jobs for the policy's expression now could hold the job without them.",
			nodes:  []int{2},
			acts: []act{
				{
					stand: []made{small("r1", ""), small("r2", ""), small("r3", ""), small("r4", ""), small("r5", "")},
					want:  []string{"r1 to a", "r2 to a", "r3 to a", "r4 to a", "r5 to a"},
				},
				{
					stand: []made{{name: "big", team: "few", pods: 2, gpus: 8, minute: 1}, small("late", "few")},
					waits: []string{"big NoFit", "late Queued"},
				},
				{minutes: 31, waits: []string{"big Reserved", "late Queued"}, held: []string{"a for big"}},
				{end: []string{"r1", "r2", "r3", "r4", "r5"}, want: []string{"big to a"}, waits: []string{"late Reserved"}, held: []string{"a for late"}},
			},
		},
		"ReservationPassedOn": {
			reason: "When a reserved job is placed, what it leaves goes to those behind it in order, in the same pass.",
			nodes:  []int{2, 1},
			acts: []act{
				{stand: []made{on("a", one("x", 0)), on("a", one("y", 0)), on("b", one("z", 0))}, want: []string{"x to a", "y to a", "z to b"}},
				{
					stand:   []made{{name: "big", team: "impatient", pods: 2, gpus: 4}, {name: "p", pods: 1, gpus: 4, minute: 1}, {name: "q", pods: 1, gpus: 5, minute: 2}},
					minutes: 10, waits: []string{"big Reserved", "p NoFit", "q NoFit"}, held: []string{"a for big"},
				},
				{end: []string{"x", "z"}, want: []string{"big to a", "p to b"}, waits: []string{"q NoFit"}},
			},
		},
		"ReservationOfTheNext": {
			reason: "That no worker could be held for the first of equal jobs says nothing about later, when the next is due.",
			nodes:  []int{2},
			acts: []act{
				{stand: []made{one("x", -1)}, want: []string{"x to a"}},
				{
					change: cordon, stand: []made{{name: "first", team: "impatient", pods: 2, gpus: 8}},
					minutes: 11, waits: []string{"first NoFit"},
				},
				{leave: []string{"first"}, stand: []made{{name: "next", team: "impatient", pods: 2, gpus: 8, minute: 8}}, waits: []string{"next NoFit"}},
				{change: uncordon, waits: []string{"next NoFit"}},
				{minutes: 10, waits: []string{"next Reserved"}, held: []string{"a for next"}},
			},
		},
		"OlderThanReserved": {
			reason: "Of jobs of equal demand one may be before the reservation and one behind it.",
			nodes:  []int{2},
			acts: []act{
				{stand: []made{one("x", -1)}, want: []string{"x to a"}},
				{
					stand:   []made{{name: "big", team: "impatient", pods: 2, gpus: 8, minute: 1}, one("young", 2)},
					minutes: 11, waits: []string{"big Reserved", "young Queued"}, held: []string{"a for big"},
				},
				{stand: []made{one("old", 0)}, want: []string{"old to a"}, waits: []string{"big Reserved", "young NoFit"}, held: []string{"a for big"}},
			},
		},
		"StrictHidden": {
			reason: "What has changed while a job was held counts when it is not any more.",
			nodes:  []int{1},
			acts: []act{
				{stand: []made{one("x", 0)}, want: []string{"x to a"}},
				{stand: []made{{name: "small", team: "strict", pods: 1, gpus: 4}}, waits: []string{"small NoFit"}},
				{
					stand: []made{{name: "big", team: "strict", pods: 1, gpus: 8, priority: 1}, {name: "y", pods: 1, gpus: 1, priority: 2}},
					end:   []string{"x"}, want: []string{"y to a"}, waits: []string{"big NoFit", "small Queued"},
				},
				{leave: []string{"big"}, want: []string{"small to a"}},
			},
		},
		"Preemption": {
			reason: "Victims are named once, nobody behind takes the room, and when it is there the job is placed.",
			nodes:  []int{2, 2},
			acts: []act{
				{
					stand: []made{
						{name: "x", pods: 1, gpus: 8, priority: 1, on: "a"}, {name: "y", pods: 1, gpus: 8, on: "a"},
						{name: "z", pods: 2, gpus: 8, priority: 1, on: "b"},
					},
					want: []string{"x to a", "z to b", "y to a"},
				},
				{stand: []made{{name: "vip", team: "mighty", pods: 1, gpus: 8, priority: 1}}, want: []string{"vip preempts on a y"}, waits: []string{"vip Preempting"}, held: []string{"a for vip"}},
				{stand: []made{{name: "late", pods: 1, gpus: 1, priority: 1, minute: 5}}, waits: []string{"vip Preempting", "late NoFit"}, held: []string{"a for vip"}},
				{restart: true, waits: []string{"vip Preempting", "late NoFit"}, held: []string{"a for vip"}},
				{vanish: []made{{name: "y", pods: 1, gpus: 8}}, want: []string{"vip to a"}, waits: []string{"late NoFit", "y NoFit"}},
			},
		},
		"PreemptionInVain": {
			reason: "Nobody is stopped for a job that would not fit then, nor for one of a policy that does not say so, nor those of equal priority.",
			nodes:  []int{2},
			acts: []act{
				{stand: []made{{name: "x", pods: 1, gpus: 8, priority: 1}, one("y", 0)}, want: []string{"x to a", "y to a"}},
				{
					stand: []made{
						{name: "both", team: "mighty", pods: 2, gpus: 8, priority: 1}, {name: "equal", team: "mighty", pods: 1, gpus: 8},
						{name: "meek", pods: 1, gpus: 8, priority: 9},
					},
					waits: []string{"meek NoFit", "both NoFit", "equal NoFit"},
				},
			},
		},
		"PreemptionOfTheWilling": {
			reason: "Nobody is stopped on a worker that has not said yet that it takes the job, nor on one where it would be in vain.",
			nodes:  []int{1, 1},
			acts: []act{
				{stand: []made{on("a", one("x", 0)), low}, minutes: 1, want: []string{"x to a", "y to b"}},
				{
					change: func(s *scene) { s.reluctant = map[v1alpha1.ClusterName]bool{"a": true, "b": true} },
					stand:  []made{{name: "vip", team: "mighty", pods: 1, gpus: 8, priority: 1, minute: 1}}, waits: []string{"vip NoFit"},
				},
				{
					change: func(s *scene) {
						s.futile = map[v1alpha1.ClusterName]bool{"b": true}
						s.touch(s.site("b"))
					},
					waits: []string{"vip NoFit"},
				},
				{
					change: func(s *scene) {
						s.reluctant = nil
						s.touch(s.site("a"))
					},
					want: []string{"vip preempts on a x"}, waits: []string{"vip Preempting"}, held: []string{"a for vip"},
				},
			},
		},
		"PreemptionAgain": {
			reason: "If somebody before it takes the room that was made, it preempts again.",
			nodes:  []int{1, 1},
			acts: []act{
				{stand: []made{on("a", one("x", 0)), low}, minutes: 1, want: []string{"x to a", "y to b"}},
				{stand: []made{{name: "vip", team: "mighty", pods: 1, gpus: 8, priority: 1, minute: 1}}, want: []string{"vip preempts on b y"}, waits: []string{"vip Preempting"}, held: []string{"b for vip"}},
				{
					stand: []made{{name: "first", pods: 1, gpus: 6, priority: 2, minute: 2}}, vanish: []made{low},
					want: []string{"first to b", "vip preempts on a x"}, waits: []string{"vip Preempting", "y NoFit"}, held: []string{"a for vip"},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, tc.nodes...)
			for i, a := range tc.acts {
				s.act(a)
				s.check(t, fmt.Sprintf("%s Act %d: who is placed", tc.reason, i), a.want, s.pass(a.minutes))
				s.check(t, fmt.Sprintf("%s Act %d: what they wait for", tc.reason, i), a.waits, s.answers())
				s.check(t, fmt.Sprintf("%s Act %d: what is held", tc.reason, i), a.held, s.held())
				s.calm(t)
			}
		})
	}
}

// TestOutcomes: a pass reports news once, for the first job of each class.
func TestOutcomes(t *testing.T) {
	s := newScene(t, 1)
	s.stand(made{name: "a", pods: 1, gpus: 8}, made{name: "b", pods: 1, gpus: 8, minute: 1}, made{name: "c", pods: 2, gpus: 8, minute: 2})
	said := func() (said []string) {
		for _, o := range s.Pass(s.now, s.fleet) {
			said = append(said, o.Job.Name+" "+o.Decision.Reason)
		}
		return said
	}
	s.check(t, "all is new", []string{"a Placed", "b NoFit", "c NoFit"}, said())
	s.check(t, "nothing is new", nil, said())
	s.stand(made{name: "d", pods: 1, gpus: 8, minute: 3})
	s.check(t, "who is not the first of his class has an answer without being asked", nil, said())
	s.check(t, "all have answers", []string{"b NoFit", "c NoFit", "d Queued"}, s.answers())
	s.Leave(key("b"))
	s.check(t, "another is the first", []string{"d NoFit"}, said())
}

// TestNext: Next is when Pass must be called without an event.
func TestNext(t *testing.T) {
	s := newScene(t, 2)
	want := func(reason string, want time.Time) {
		t.Helper()
		s.pass(0)
		if got := s.Next(); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", reason, got, want)
		}
	}
	want("nobody waits", time.Time{})
	s.stand(made{name: "x", pods: 1, gpus: 8, minute: -1}, made{name: "slow", pods: 2, gpus: 8}, made{name: "quick", team: "impatient", pods: 2, gpus: 8, minute: 1})
	want("the first that is due", start.Add(11*time.Minute))
	s.now = start.Add(11 * time.Minute)
	want("it has its reservation, and the other is due later", start.Add(2*time.Hour))
	s.now = start.Add(2 * time.Hour)
	want("the one that is first takes the worker, and for the other there is none", time.Time{})
	s.check(t, "who has it", []string{"a for slow"}, s.held())
	s.stand(made{name: "later", pods: 2, gpus: 7, minute: 20})
	want("one more", start.Add(2*time.Hour+20*time.Minute))
	s.Leave(key("later"))
	want("which leaves", time.Time{})
}

// TestEnter: a job that is on the waiting list already keeps its place and its reservation.
func TestEnter(t *testing.T) {
	s := newScene(t, 2)
	s.stand(made{name: "x", pods: 1, gpus: 8})
	s.pass(0)
	big := made{name: "big", team: "impatient", pods: 2, gpus: 8}
	s.stand(big)
	s.pass(10)
	if again := big.job(); s.Enter(again) || s.Len() != 1 {
		t.Error("the same job is on the waiting list twice")
	}
	s.check(t, "it has a reservation", []string{"a for big"}, s.held())
	late := big.job()
	late.Priority, late.Since = 5, s.now
	if !s.Enter(late) || s.Len() != 1 {
		t.Error("another priority is nothing new")
	}
	s.pass(0)
	s.check(t, "it keeps its reservation", []string{"a for big"}, s.held())
	another := big.job()
	another.UID, another.Since = "another", s.now
	s.Enter(another)
	s.pass(0)
	s.check(t, "another job of the same name has waited for no time", nil, s.held())
	if got := s.Keys(); !slices.Equal(got, []types.NamespacedName{key("big")}) {
		t.Errorf("on the waiting list are %v", got)
	}
}

// TestExplain: the explanation says which workers are held.
func TestExplain(t *testing.T) {
	s := newScene(t, 2)
	s.stand(made{name: "x", pods: 1, gpus: 8}, made{name: "big", team: "impatient", pods: 2, gpus: 8, minute: 1}, made{name: "late", pods: 1, gpus: 8, minute: 2})
	s.Leave(key("late"))
	s.pass(20)
	late := made{name: "late", pods: 1, gpus: 8, minute: 2}
	s.stand(late)
	s.pass(0)
	job := late.job()
	lines := s.Explain(&job, s.fleet)
	if len(lines) != 1 || lines[0].Reason != v1alpha1.ReasonReserved || !strings.Contains(lines[0].Message, "held for a job before this one") {
		t.Errorf("Explain() = %+v", lines)
	}
	if w := s.Workers()[0]; w.Revision == 0 || w.Nodes.Free(gpu) != 8 {
		t.Errorf("the fleet's worker has changed: %+v", w)
	}
}

// TestStarvation: small jobs that keep coming overtake a big job for ever, unless a worker is held for it.
func TestStarvation(t *testing.T) {
	for team, placed := range map[string]bool{"best": false, "impatient": true} {
		t.Run(team, func(t *testing.T) {
			s := newScene(t, 4, 4)
			running := map[string]int{}
			for minute := range 29 { // The policy best reserves later.
				if minute == 3 {
					s.stand(made{name: "big", team: team, pods: 4, gpus: 8, minute: minute})
				}
				for name, began := range running {
					if minute-began >= 4 {
						s.ends(name)
						delete(running, name)
					}
				}
				for i := range 2 {
					s.stand(made{name: fmt.Sprintf("small-%02d-%d", minute, i), pods: 1, gpus: 8, minute: minute})
				}
				for _, did := range s.pass(1) {
					running[strings.Fields(did)[0]] = minute
				}
			}
			if s.Has(key("big")) == placed {
				t.Errorf("placed: %v, want %v; %v", !placed, placed, s.fleet)
			}
		})
	}
}
