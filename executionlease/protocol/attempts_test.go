// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/check"
)

func originOf(uid types.UID) Origin {
	return Origin{Hub: "hub", Namespace: "team", Name: "llm", UID: uid}
}

// TestRank: each case is a list of the copies of one hub TrainJob, in order. It checks the rank of the last
// one.
func TestRank(t *testing.T) {
	type step struct {
		copy      types.UID
		attempt   int64
		challenge Challenge
		stopped   bool
		// gone: the copy was deleted. asked: somebody asks with an older version of the copy than the watch has shown.
		gone, asked bool
		hold        bool
	}
	cases := map[string]struct {
		reason string
		steps  []step
		want   Rank
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
		"SetBack": {
			reason: "Somebody has raised its attempt, and the hub has put that right.",
			steps:  []step{{copy: "a", attempt: 2}, {copy: "a", attempt: 9}, {copy: "a", attempt: 2}}, want: Current,
		},
		"Raised": {
			reason: "The hub has adopted it as a later attempt. An earlier one is late.",
			steps: []step{
				{copy: "a", attempt: 2}, {copy: "a", attempt: 9}, {copy: "a", gone: true, attempt: 9}, {copy: "b", attempt: 8},
			}, want: Outdated,
		},
		"AskedWithAnAttemptThatWasSetBack": {
			reason: "Who asks has read it before.",
			steps: []step{
				{copy: "a", attempt: 2}, {copy: "a", attempt: 9}, {copy: "a", attempt: 2},
				{copy: "a", attempt: 9, asked: true}, {copy: "a", attempt: 2, asked: true},
			}, want: Current,
		},
		"Lowered": {
			reason: "It says that it is of an attempt that was here before.",
			steps:  []step{{copy: "a", attempt: 2}, {copy: "b", attempt: 3}, {copy: "b", attempt: 1}}, want: Outdated,
		},
		"WithoutItsAttempt": {
			reason: "Somebody takes the mark off and deletes it. The attempt is remembered.",
			steps: []step{
				{copy: "a", attempt: 2}, {copy: "a"}, {copy: "a", gone: true}, {copy: "b", attempt: 1},
			}, want: Outdated,
		},
		"Hold": {
			reason: "Nobody stamps it, so it would never start.",
			steps:  []step{{copy: "a", hold: true}, {copy: "a", gone: true, hold: true}, {copy: "b", hold: true}}, want: Current,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var a Attempts
			var got Rank
			for i, step := range tc.steps {
				s := CopyState{
					Origin: originOf("origin"), Copy: step.copy, Attempt: step.attempt, Fenced: !step.hold,
					Challenge: step.challenge, Stopped: step.stopped,
				}
				switch now := at(float64(i)); {
				case step.gone:
					a.Gone(s, now)
				case step.asked:
					got = a.Rank(s, now)
				default:
					before := a.Rank(s, now)
					accepted := a.Here(s, now)
					got = a.Rank(s, now)
					if accepted != (before == Repeated && got == Current) {
						t.Errorf("step %d: accepted is %t, and it was %s and is %s", i, accepted, before, got)
					}
				}
			}
			check.Equal(t, tc.want, got, "%s", tc.reason)
		})
	}
}

// TestAttemptsAreForgotten: an attempt without copies is forgotten, but only when Admits refuses its late creations.
func TestAttemptsAreForgotten(t *testing.T) {
	var a Attempts
	const (
		long       = 10 * time.Hour
		jobsAnHour = 1000
	)
	a.Keep(long)
	a.Keep(time.Minute)
	copyState := func(origin time.Duration) CopyState {
		return CopyState{Origin: originOf(types.UID(origin.String())), Copy: "a", Attempt: 1, Fenced: true}
	}
	a.Here(copyState(-1), at(0)) // This copy stays, and no event about it comes any more.
	for i := range 20 * jobsAnHour {
		now := at(float64(10 * i))
		a.Here(copyState(time.Duration(i)), now)
		a.Gone(copyState(time.Duration(i)), now)
	}
	if n := len(a.known); n > 10*jobsAnHour {
		t.Errorf("%d attempts are remembered of jobs that have gone long ago", n)
	}
	now := at(20 * jobsAnHour * 10)
	for name, origin := range map[string]time.Duration{"there": -1, "not gone for so long": 20*jobsAnHour - long/(10*time.Second) + 1} {
		second := copyState(origin)
		second.Copy = "b"
		check.Equal(t, Repeated, a.Rank(second, now), "a second copy of the job that is %s", name)
	}
}

// TestLater: Later is the attempt that makes a copy Outdated. The hub counts on from it.
func TestLater(t *testing.T) {
	var a Attempts
	now := time.Unix(0, 0)
	third := CopyState{Origin: originOf("job"), Copy: "c3", Attempt: 3}
	a.Here(third, now)
	for name, test := range map[string]struct {
		copyState CopyState
		want      int64
	}{
		"Earlier": {CopyState{Origin: originOf("job"), Copy: "c1", Attempt: 1}, 3},
		"Same":    {third, 0},
		"Another": {CopyState{Origin: originOf("job"), Copy: "c3-again", Attempt: 3}, 0},
		"Unknown": {CopyState{Origin: originOf("other"), Copy: "c1", Attempt: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, a.Later(test.copyState, now), "Later()")
		})
	}
}

// TestOtherJobsSayNothing: a copy counts only for its hub TrainJob, and no copy of another namespace can name that job.
func TestOtherJobsSayNothing(t *testing.T) {
	now := time.Unix(0, 0)
	victim := CopyState{Origin: originOf("job"), Copy: "victim", Attempt: 1, Fenced: true}
	for name, change := range map[string]func(*Origin){
		"Hub":       func(o *Origin) { o.Hub = "other" },
		"Namespace": func(o *Origin) { o.Namespace = "other" },
		"Name":      func(o *Origin) { o.Name = "other" },
		"UID":       func(o *Origin) { o.UID = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			var a Attempts
			a.Here(victim, now)
			forged := victim
			forged.Copy, forged.Attempt = "forged", 1000
			change(&forged.Origin)
			a.Here(forged, now)
			if got := a.Rank(victim, now); got != Current {
				t.Errorf("the copy is %s since there is a TrainJob with another %s", got, name)
			}
		})
	}
}

// TestAttemptsAreBounded: if a user creates and deletes many copies in one namespace, only attempts of that
// namespace are forgotten.
func TestAttemptsAreBounded(t *testing.T) {
	var a Attempts
	now := time.Unix(0, 0)
	copyState := func(namespace string, number int) CopyState {
		origin := originOf(types.UID(fmt.Sprint(number)))
		origin.Namespace = namespace
		return CopyState{Origin: origin, Copy: "a", Attempt: 2}
	}
	there := copyState("noisy", -1)
	a.Here(there, now)
	for number := range 100 {
		a.Here(copyState("quiet", number), now)
		a.Gone(copyState("quiet", number), now)
	}
	for number := range 2 * MaxGone {
		a.Here(copyState("noisy", number), now)
		a.Gone(copyState("noisy", number), now)
	}
	if n := len(a.known); n > MaxGone+1 {
		t.Errorf("%d attempts are remembered, and %d at most should be", n, MaxGone+1)
	}
	for name, s := range map[string]CopyState{
		"of another namespace": copyState("quiet", 0), "that is there": there, "that went last": copyState("noisy", 2*MaxGone-1),
	} {
		s.Copy, s.Attempt = "b", 1
		check.Equal(t, Outdated, a.Rank(s, now), "an earlier attempt of the job %s", name)
	}
}
