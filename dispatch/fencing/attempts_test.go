// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestStanding is about the copies of one hub TrainJob. Each case is a row of what is seen, and how the last one stands.
func TestStanding(t *testing.T) {
	type step struct {
		copy      types.UID
		attempt   int64
		challenge Challenge
		stopped   bool
		// gone: it was deleted. asked: somebody wants to know, with what it has read some time before, and the watch has not shown it.
		gone, asked bool
		hold        bool
	}
	cases := map[string]struct {
		reason string
		steps  []step
		want   Standing
	}{
		"First":   {reason: "Nothing else was seen.", steps: []step{{copy: "a", attempt: 2}}, want: Current},
		"Higher":  {reason: "The job is here again.", steps: []step{{copy: "a", attempt: 2}, {copy: "b", attempt: 3}}, want: Current},
		"Lower":   {reason: "Its creation was late.", steps: []step{{copy: "a", attempt: 2}, {copy: "b", attempt: 1}}, want: Outdated},
		"Resumed": {reason: "It is the same one.", steps: []step{{copy: "a", challenge: of(1, 1)}, {copy: "a", challenge: of(1, 9)}}, want: Current},
		"SentTwice": {
			reason: "The job is elsewhere since the first one was deleted.",
			steps:  []step{{copy: "a", challenge: of(1, 2)}, {copy: "a", gone: true}, {copy: "b", challenge: of(1, 1)}}, want: Repeated,
		},
		"SentTwiceAndOvertaken": {
			reason: "The creation that was sent later arrives later. That its challenge is greater than that of the first one says nothing.",
			steps:  []step{{copy: "a", challenge: of(1, 1)}, {copy: "a", gone: true}, {copy: "b", challenge: of(1, 2)}}, want: Repeated,
		},
		"StampedSince": {
			reason: "The hub has seen the second one, and wants it.",
			steps:  []step{{copy: "a"}, {copy: "b", challenge: of(1, 2)}, {copy: "b", challenge: of(1, 3)}}, want: Current,
		},
		"ReleasedSince": {
			reason: "The same, before there was another challenge.",
			steps: []step{
				{copy: "a"}, {copy: "b", challenge: of(1, 2)}, {copy: "b", challenge: of(1, 2), stopped: true}, {copy: "b", challenge: of(1, 2)},
			}, want: Current,
		},
		"ComesStopped": {
			reason: "Another replica was faster.",
			steps: []step{
				{copy: "a"}, {copy: "b", challenge: of(1, 2), stopped: true}, {copy: "b", challenge: of(1, 2), stopped: true},
			}, want: Repeated,
		},
		"AskedWithAnOldVersion": {
			reason: "That the mark is not there yet does not say that it was taken off.",
			steps: []step{
				{copy: "a"}, {copy: "b", challenge: of(1, 2), stopped: true}, {copy: "b", challenge: of(1, 2), asked: true},
			}, want: Repeated,
		},
		"AskedBeforeTheWatch": {
			reason: "What asks has seen that the second one was stamped anew. The watch will show it in order.",
			steps: []step{
				{copy: "a"}, {copy: "b", challenge: of(1, 3), asked: true}, {copy: "b", challenge: of(1, 2)}, {copy: "b", challenge: of(1, 3)},
			}, want: Current,
		},
		"Hold": {
			reason: "Nobody stamps it, so it would never start.",
			steps:  []step{{copy: "a", hold: true}, {copy: "a", gone: true, hold: true}, {copy: "b", hold: true}}, want: Current,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var a Attempts
			var got Standing
			for i, step := range tc.steps {
				s := Sighting{
					Origin: "origin", Copy: step.copy, Attempt: step.attempt, Fenced: !step.hold, Challenge: step.challenge, Stopped: step.stopped,
				}
				switch now := at(float64(i)); {
				case step.gone:
					a.Gone(s, now)
				case step.asked:
					got = a.Standing(s, now)
				default:
					before := a.Standing(s, now)
					accepted := a.Here(s, now)
					got = a.Standing(s, now)
					if accepted != (before == Repeated && got == Current) {
						t.Errorf("step %d: accepted is %t, and it was %s and is %s", i, accepted, before, got)
					}
				}
			}
			if got != tc.want {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// TestAttemptsAreForgotten: what is not there any more is forgotten, but not before a creation of it is known by its challenge.
func TestAttemptsAreForgotten(t *testing.T) {
	var a Attempts
	const long = 10 * time.Hour
	a.Keep(long)
	a.Keep(time.Minute)
	sighting := func(origin time.Duration) Sighting {
		return Sighting{Origin: types.UID(origin.String()), Copy: "a", Attempt: 1, Fenced: true}
	}
	a.Here(sighting(-1), at(0)) // It stays, and nothing is heard of it any more.
	for i := range 20 * sweepSize {
		now := at(float64(10 * i))
		a.Here(sighting(time.Duration(i)), now)
		a.Gone(sighting(time.Duration(i)), now)
	}
	if n := len(a.known); n > 10*sweepSize {
		t.Errorf("%d attempts are remembered of jobs that have gone long ago", n)
	}
	now := at(20 * sweepSize * 10)
	for name, origin := range map[string]time.Duration{"there": -1, "not gone for so long": 20*sweepSize - long/(10*time.Second) + 1} {
		second := sighting(origin)
		second.Copy = "b"
		if got := a.Standing(second, now); got != Repeated {
			t.Errorf("a second copy of the job that is %s: got %s, want %s", name, got, Repeated)
		}
	}
}

// Later says which attempt it was that makes a copy Outdated, for the hub to count on from.
func TestLater(t *testing.T) {
	var a Attempts
	now := time.Unix(0, 0)
	third := Sighting{Origin: "job", Copy: "c3", Attempt: 3}
	a.Here(third, now)
	for name, test := range map[string]struct {
		sighting Sighting
		want     int64
	}{
		"Earlier": {Sighting{Origin: "job", Copy: "c1", Attempt: 1}, 3},
		"Same":    {third, 0},
		"Another": {Sighting{Origin: "job", Copy: "c3-again", Attempt: 3}, 0},
		"Unknown": {Sighting{Origin: "other", Copy: "c1", Attempt: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := a.Later(test.sighting, now); got != test.want {
				t.Errorf("Later() = %d, want %d", got, test.want)
			}
		})
	}
}
