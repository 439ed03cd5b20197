// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
)

// TestDecide has a lease that is Valid until 101 (heard), unless a case changes it. A copy without pods is stopped from
// 86 on, a copy whose pods have 20 s from 66 on. No copy is stopped before 51.
func TestDecide(t *testing.T) {
	running := func(change func(c *Copy)) Copy {
		c := Copy{Challenge: of(1, 1), Started: true, Pods: Pods{Alive: 2, Staying: 2, Grace: 20 * time.Second}}
		if change != nil {
			change(&c)
		}
		return c
	}
	fenced := func(change func(c *Copy)) Copy {
		return running(func(c *Copy) {
			c.Stopped, c.StoppedFor, c.Suspended, c.Pods.Staying = true, "1.1", true, 0
			if change != nil {
				change(c)
			}
		})
	}
	newcomer := func(change func(c *Copy)) Copy {
		c := Copy{Challenge: of(1, 1)}
		if change != nil {
			change(&c)
		}
		return c
	}
	longGrace := func(c *Copy) { c.Pods.Grace = time.Hour }
	cases := map[string]struct {
		reason string
		do     func(a *Agent) // heard, if nil
		copy   Copy
		at     float64
		want   Decision
	}{
		"Runs": {
			reason: "Nothing is looked at before half of the fence time.",
			copy:   running(nil), at: 10, want: Decision{Again: at(51)},
		},
		"NotYet": {
			reason: "There is time until the grace and the slack are needed. Pods with a longer grace may come.",
			copy:   running(nil), at: 51, want: Decision{Again: at(61)},
		},
		"AlmostTime": {
			reason: "The next look is when the stop begins.",
			copy:   running(nil), at: 60, want: Decision{Again: at(66)},
		},
		"Silence": {
			reason: "By the deadline the pods have to have ended, so the stop begins before it.",
			copy:   running(nil), at: 66, want: Decision{Action: Suspend, Reason: Silence, Again: at(68)},
		},
		"LongGrace": {
			reason: "At most half of the fence time is spent on a stop.",
			copy:   running(longGrace), at: 51, want: Decision{Action: Suspend, Reason: Silence, Again: at(53)},
		},
		"NoPods": {
			reason: "A copy without pods, and one that is suspended, is marked too: a late resumption by the hub then meets a conflict.",
			copy:   newcomer(func(c *Copy) { c.Started, c.Suspended = true, true }), at: 86,
			want: Decision{Action: Suspend, Reason: Silence, Again: at(88)},
		},
		"CannotBeSuspended": {
			reason: "At half time, whoever cannot be suspended is to be deleted.",
			copy:   running(nil), at: 79, want: Decision{Action: Suspend, Reason: Silence, Urgent: true, Again: at(81)},
		},
		"PodsEnd": {
			reason: "They have been told to, and have their grace.",
			copy:   fenced(nil), at: 70, want: Decision{Again: at(78.5)},
		},
		"NobodyEndsThePods": {
			reason: "By half time no controller has deleted them: nobody acts on the suspension.",
			copy:   fenced(func(c *Copy) { c.Pods.Staying = 1 }), at: 78.5, want: Decision{Action: Delete, Reason: Silence, Again: at(80.5)},
		},
		"PodsStillEnd": {
			reason: "They have been told to, and a deletion of the copy would not end them sooner.",
			copy:   fenced(nil), at: 80, want: Decision{Again: at(91)},
		},
		"PodsLinger": {
			reason: "10 s before the deadline they are told to hurry.",
			copy:   fenced(longGrace), at: 91, want: Decision{Action: Shorten, Reason: Silence, Again: at(93)},
		},
		"PodsOfADeletedCopyLinger": {
			reason: "Whoever has deleted the copy, its pods live.",
			copy:   running(func(c *Copy) { c.Going = true }), at: 91, want: Decision{Action: Shorten, Reason: Silence, Again: at(93)},
		},
		"Stopped": {
			reason: "It is looked at again, should a pod turn up.",
			copy:   fenced(func(c *Copy) { c.Pods = Pods{} }), at: 120, want: Decision{Again: at(130)},
		},
		"PodTurnsUp": {
			reason: "An apply that was late has made a JobSet.",
			copy:   fenced(func(c *Copy) { c.Pods.Staying = 2 }), at: 120, want: Decision{Action: Delete, Reason: Silence, Again: at(122)},
		},
		"SilentAgain": {
			reason: "The hub was back and has not resumed it yet. Its resumption may be on the way, and has to fail.",
			copy:   fenced(func(c *Copy) { c.StoppedFor, c.Pods = "0.9", Pods{} }), at: 87,
			want: Decision{Action: Suspend, Reason: Silence, Again: at(89)},
		},
		"HubIsBack": {
			reason: "To resume a copy is the hub's, which knows where the job is now.",
			do: func(a *Agent) {
				heard(a)
				a.Issued(of(1, 2), at(95))
				a.Answered(of(1, 2), fence, at(96))
			},
			copy: fenced(nil), at: 97, want: Decision{Again: at(145)},
		},
		"ResumedByKueue": {
			reason: "Only the hub takes the mark off. Who else resumes the copy does it again and again, so it is deleted.",
			copy:   fenced(func(c *Copy) { c.Suspended = false }), at: 3, want: Decision{Action: Delete, Reason: ResumedByOthers, Again: at(5)},
		},
		"LateCreation": {
			reason: "It must not start, also where no gate is in the way.",
			do:     successor,
			copy:   newcomer(func(c *Copy) { c.Challenge = of(4, 9) }), at: 3,
			want: Decision{Action: Suspend, Reason: LateCreation, Again: at(5)},
		},
		"OfALeaseThatIsGone": {
			reason: "Who leads knows all runs that this lease has had.",
			copy:   newcomer(func(c *Copy) { c.Challenge = of(2, 1) }), at: 3,
			want: Decision{Action: Suspend, Reason: LateCreation, Again: at(5)},
		},
		"AheadOfTheWrite": {
			reason: "The hub has answered a challenge whose write has not returned yet.",
			copy:   newcomer(func(c *Copy) { c.Challenge = of(1, 2) }), at: 3, want: Decision{Again: at(51)},
		},
		"LateCreationBeforeAnyAnswer": {
			reason: "Nothing is known yet. What has to be done is done when the hub has answered, or not.",
			do:     leader,
			copy:   newcomer(func(c *Copy) { c.Challenge = of(4, 9) }), at: 3, want: Decision{Again: at(10)},
		},
		"OldChallengeOfARunningCopy": {
			reason: "It has started long ago.",
			do:     successor, copy: running(func(c *Copy) { c.Challenge = of(4, 9) }), at: 3, want: Decision{Again: at(51)},
		},
		"OldAttempt": {
			reason: "The job is elsewhere, or the hub was set back. It does not run, whether it has started or not.",
			copy:   running(func(c *Copy) { c.Rank = Outdated }), at: 3, want: Decision{Action: Suspend, Reason: OldAttempt, Again: at(5)},
		},
		"SecondCopy": {
			reason: "Its creation was sent twice. It waits until the hub has looked at it.",
			copy:   running(func(c *Copy) { c.Rank = Repeated }), at: 3, want: Decision{Action: Suspend, Reason: SecondCopy, Again: at(5)},
		},
		"SecondCopyStopped": {
			reason: "The hub resumes it, or deletes it.",
			copy:   fenced(func(c *Copy) { c.Rank, c.Pods = Repeated, Pods{} }), at: 3, want: Decision{Again: at(51)},
		},
		"HandoverIsOver": {
			reason: "A replica that knew nothing has waited for an answer, and now has the slack until the deadline.",
			do:     leader, copy: running(longGrace), at: 10, want: Decision{Action: Suspend, Reason: Silence, Again: at(12)},
		},
		"EndOfAHandover": {
			reason: "10 s before that deadline, at 25, pods that linger are told to hurry.",
			do:     leader, copy: fenced(func(c *Copy) { c.StoppedFor = "none" }), at: 15,
			want: Decision{Action: Shorten, Reason: Silence, Again: at(17)},
		},
		"StoppedBeforeTheTakeover": {
			reason: "The agent before has begun. It is gone on with when the hub has had its time to answer.",
			do:     leader, copy: fenced(nil), at: 3, want: Decision{Again: at(10)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &Agent{}
			if tc.do == nil {
				tc.do = heard
			}
			tc.do(a)
			check.Diff(t, tc.want, a.Decide(tc.copy, at(tc.at)), tc.reason)
		})
	}
}

// TestLongestGrace: pods that have the longest grace have all of it before the agent shortens it, and with two seconds
// more they have not, once the controllers have taken the time that is planned for them.
func TestLongestGrace(t *testing.T) {
	for _, fenceAfter := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute, time.Hour} {
		longest := LongestGrace(fenceAfter)
		if got := LongestGrace(ShortestFenceAfter(longest)); got < longest-time.Millisecond || got > longest+time.Millisecond {
			t.Errorf("fenceAfter %s gives %s, and %s is said to need %s", fenceAfter, longest, longest, ShortestFenceAfter(longest))
		}
		for grace, whole := range map[time.Duration]bool{longest: true, longest + 2*time.Second: false} {
			a := &Agent{}
			start := time.Unix(1e9, 0)
			a.Issued(Challenge{Run: 1, Number: 1}, start)
			a.Answered(Challenge{Run: 1, Number: 1}, fenceAfter, start)
			var told, shortened time.Time
			c := Copy{Challenge: Challenge{Run: 1, Number: 1}, Started: true, Pods: Pods{Alive: 1, Staying: 1, Grace: grace}}
			for now := start; shortened.IsZero() && now.Before(start.Add(2*fenceAfter)); now = now.Add(100 * time.Millisecond) {
				switch a.Decide(c, now).Action {
				case Suspend:
					if told.IsZero() {
						told = now
					}
					c.Stopped, c.StoppedFor, c.Suspended, c.Pods.Staying = true, a.Answer(), true, 0
				case Shorten:
					shortened = now
				case Leave, Delete:
				}
			}
			planned := min(fenceAfter/3, Slack) - min(fenceAfter/6, maxLead) // For the controllers between TrainJob and pods.
			if told.IsZero() || shortened.IsZero() {
				t.Fatalf("fenceAfter %s: the copy was told at %s, its grace shortened at %s", fenceAfter, told, shortened)
			}
			if had := shortened.Sub(told) - planned; (had >= grace-200*time.Millisecond) != whole {
				t.Errorf("fenceAfter %s: pods with a grace of %s have %s; the longest grace is %s", fenceAfter, grace, had, longest)
			}
		}
	}
}
