// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The tables use a fenceAfter of 100 s: an interval and a handover of 10 s, a slack of 15 s, a lead of 10 s.
const fence = 100 * time.Second

var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// at is a time of the tests, in seconds.
func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func of(run, number int64) Challenge { return Challenge{Run: run, Number: number} }

func TestParseChallenge(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		want         Challenge
	}{
		"Ours":      {reason: "Run and number.", text: "7.12", want: of(7, 12)},
		"None":      {reason: "A new lease has none.", text: ""},
		"NoNumber":  {reason: "That is none of ours.", text: "7"},
		"Zero":      {reason: "Both count from 1.", text: "7.0"},
		"Negative":  {reason: "It would be before all others.", text: "7.-1"},
		"More":      {reason: "Two texts must not be one challenge.", text: "7.1.2"},
		"LeadingO":  {reason: "Two texts must not be one challenge.", text: "7.01"},
		"TooLarge":  {reason: "What is too large is not cut.", text: "99999999999999999999.1"},
		"NoNumbers": {reason: "A person has written it.", text: "yes.please"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, ParseChallenge(tc.text), "%s", tc.reason)
		})
	}
}

// leader takes over a new lease at 0, as run 1.
func leader(a *Agent) {
	a.Shown(Challenge{}, at(0))
	a.Answered(Challenge{}, fence, at(0))
	a.TakeOver(1, at(0))
}

// heard issues 1.1 at 1, and reads the answer at 2.
func heard(a *Agent) {
	leader(a)
	a.Issued(of(1, 1), at(1))
	a.Answered(of(1, 1), fence, at(2))
}

// successor knows nothing and takes over at 0. It issues 5.1 at 1, and reads the answer at 2.
func successor(a *Agent) {
	a.Shown(of(4, 9), at(0))
	a.Answered(of(4, 9), fence, at(0))
	a.TakeOver(5, at(0))
	a.Issued(of(5, 1), at(1))
	a.Answered(of(5, 1), fence, at(2))
}

func TestState(t *testing.T) {
	type look struct {
		At    float64
		State v1alpha1.LeaseState
	}
	pending, valid, expired := v1alpha1.LeasePending, v1alpha1.LeaseValid, v1alpha1.LeaseExpired
	cases := map[string]struct {
		reason string
		do     func(a *Agent)
		want   []look
	}{
		"NothingKnown": {
			reason: "Who does not lead, and knows nothing, says nothing.",
			do:     func(*Agent) {},
			want:   []look{{0, pending}, {1000, pending}},
		},
		"NewLease": {
			reason: "The hub has the handover to answer.",
			do:     leader,
			want:   []look{{0, pending}, {9.9, pending}, {10, expired}},
		},
		"Answered": {
			reason: "The age of an answer is that of its challenge: 1 and not 2.",
			do:     heard,
			want:   []look{{2, valid}, {100.9, valid}, {101, expired}},
		},
		"LateAnswer": {
			reason: "An answer that was on its way for 90 s proves what it proved when it was given.",
			do: func(a *Agent) {
				leader(a)
				a.Issued(of(1, 1), at(1))
				a.Issued(of(1, 2), at(11))
				a.Answered(of(1, 1), fence, at(91))
			},
			want: []look{{91, valid}, {101, expired}},
		},
		"OldAnswerAgain": {
			reason: "Who repeats an old answer says nothing, also after a newer one.",
			do: func(a *Agent) {
				heard(a)
				a.Issued(of(1, 2), at(11))
				a.Answered(of(1, 2), fence, at(12))
				a.Answered(of(1, 1), fence, at(90))
			},
			want: []look{{110.9, valid}, {111, expired}},
		},
		"AnswerToNobody": {
			reason: "An answer whose challenge is from before all that is known has no age.",
			do: func(a *Agent) {
				a.Shown(of(3, 7), at(0))
				a.Answered(of(3, 7), fence, at(1))
			},
			want: []look{{1, pending}},
		},
		"AnswerBeforeWriteReturns": {
			reason: "The answer can be seen before the write of its challenge has returned; it counts when it has.",
			do: func(a *Agent) {
				leader(a)
				a.Answered(of(1, 1), fence, at(2))
				a.Issued(of(1, 1), at(1))
				a.Answered(of(1, 1), fence, at(3))
			},
			want: []look{{3, valid}, {101, expired}},
		},
		"ShorterFenceAfter": {
			reason: "The hub counts with the longer one until it has read an answer to the shorter, so it may count at once.",
			do: func(a *Agent) {
				heard(a)
				a.Answered(of(1, 1), fence/2, at(3))
			},
			want: []look{{50.9, valid}, {51, expired}},
		},
		"LongerFenceAfter": {
			reason: "It counts from the next answer on, so that two replicas that have seen different versions agree.",
			do: func(a *Agent) {
				heard(a)
				a.Answered(of(1, 1), 2*fence, at(3))
			},
			want: []look{{100.9, valid}, {101, expired}},
		},
		"StandbyTakesOver": {
			reason: "It has read the lease after 1.1 was there, so 1.2 is younger than that read, and 1.1 than the one before.",
			do: func(a *Agent) {
				a.Shown(Challenge{}, at(0.5))
				a.Shown(of(1, 1), at(1.5))
				a.Answered(of(1, 1), fence, at(2))
				a.Shown(of(1, 2), at(11.5))
				a.Answered(of(1, 2), fence, at(12))
				a.TakeOver(2, at(50))
			},
			want: []look{{50, valid}, {101.4, valid}, {101.5, expired}},
		},
		"StandbyThatSlept": {
			reason: "It was stopped from 2 to 90. The news in its sockets is no younger for that; it asks for an answer first.",
			do: func(a *Agent) {
				a.Shown(of(1, 1), at(1.5))
				a.See(of(1, 8))
				a.Answered(of(1, 8), fence, at(90))
				a.TakeOver(2, at(120))
			},
			want: []look{{90, valid}, {101.4, valid}, {120, pending}, {129.9, pending}, {130, expired}},
		},
		"StandbyOfSilence": {
			reason: "The last answer was heard so long ago that it cannot count: there is nothing to wait for.",
			do: func(a *Agent) {
				a.Shown(of(1, 1), at(0))
				a.Answered(of(1, 1), fence, at(1))
				a.TakeOver(2, at(102))
			},
			want: []look{{102, expired}},
		},
		"NewReplicaTakesOver": {
			reason: "It knows nothing of the answered challenge and waits for the handover, no longer.",
			do: func(a *Agent) {
				a.Shown(of(4, 9), at(0))
				a.Answered(of(4, 9), fence, at(0))
				a.TakeOver(5, at(0))
			},
			want: []look{{0, pending}, {9.9, pending}, {10, expired}},
		},
		"HandoverWithoutAnswers": {
			reason: "The third agent after the one that was answered has the handover too.",
			do: func(a *Agent) {
				a.Shown(of(6, 9), at(0))
				a.Answered(of(4, 9), fence, at(0))
				a.TakeOver(4+MaxHandovers, at(0))
			},
			want: []look{{0, pending}, {10, expired}},
		},
		"TooManyHandovers": {
			reason: "Agents that come and go must not keep the copies of a silent hub alive for ever.",
			do: func(a *Agent) {
				a.Shown(of(7, 1), at(0))
				a.Answered(of(4, 9), fence, at(0))
				a.TakeOver(4+MaxHandovers+1, at(0))
			},
			want: []look{{0, expired}},
		},
		"AnsweredDuringHandover": {
			reason: "The hub is there: nothing has happened.",
			do:     successor,
			want:   []look{{2, valid}, {100.9, valid}, {101, expired}},
		},
		"LeaseMadeAnew": {
			reason: "Somebody has deleted the lease and the hub has created it: what it had answered it had, what it says now is not about us.",
			do: func(a *Agent) {
				heard(a)
				a.Replaced()
				a.Shown(Challenge{}, at(50))
				a.Answered(Challenge{}, fence, at(50))
				a.TakeOver(2, at(51))
			},
			want: []look{{51, valid}, {100.9, valid}, {101, expired}},
		},
		"StorageSetBack": {
			reason: "A read shows an earlier challenge than one before: the order is none any more, and no age is known.",
			do: func(a *Agent) {
				leader(a)
				a.Issued(of(1, 5), at(41))
				a.Shown(of(1, 2), at(42))
				a.Answered(of(1, 2), fence, at(43))
			},
			want: []look{{43, expired}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &Agent{}
			tc.do(a)
			var got []look
			for _, l := range tc.want {
				got = append(got, look{l.At, a.State(at(l.At))})
			}
			check.Diff(t, tc.want, got, fmt.Sprintf("%s\nstates", tc.reason))
		})
	}
}

func TestAdmits(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(a *Agent)
		copy   Challenge
		at     float64
		want   Admission
	}{
		"Fresh": {
			reason: "The hub is there, and was when it sent the creation.",
			do:     heard, copy: of(1, 1), at: 3, want: Admitted,
		},
		"OfTheLastButOne": {
			reason: "The hub had not read 1.2 yet when it sent the creation.",
			do: func(a *Agent) {
				heard(a)
				a.Issued(of(1, 2), at(11))
				a.Answered(of(1, 2), fence, at(12))
			},
			copy: of(1, 1), at: 13, want: Admitted,
		},
		"Delayed": {
			reason: "The creation was on its way for so long that the hub may have given it up, though it is there again.",
			do: func(a *Agent) {
				heard(a)
				a.Issued(of(1, 2), at(100))
				a.Answered(of(1, 2), fence, at(101))
			},
			copy: of(1, 1), at: 102, want: Refused,
		},
		"NotStamped": {
			reason: "A hub that does not know of leases does not fence.",
			do:     heard, at: 3, want: Refused,
		},
		"FromBeforeThisReplica": {
			reason: "Nothing is known of its age.",
			do:     successor, copy: of(4, 9), at: 3, want: Refused,
		},
		"AheadByARun": {
			reason: "Another replica has taken over, and this one has yet to see it.",
			do:     heard, copy: of(2, 1), at: 3, want: NotYet,
		},
		"AheadOfTheWatch": {
			reason: "The copy is seen before the challenge is. The lease comes soon.",
			do:     heard, copy: of(1, 2), at: 3, want: NotYet,
		},
		"NotAnswered": {
			reason: "Nobody knows whether the hub is there.",
			do:     leader, copy: of(1, 1), at: 3, want: NotYet,
		},
		"Expired": {
			reason: "The hub is silent.",
			do:     heard, copy: of(1, 1), at: 102, want: NotYet,
		},
		"SoonToExpire": {
			reason: "What starts now might have to be stopped before it runs.",
			do:     heard, copy: of(1, 1), at: 51, want: NotYet,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &Agent{}
			tc.do(a)
			check.Equal(t, tc.want, a.Admits(tc.copy, at(tc.at)), "%s", tc.reason)
		})
	}
}

// TestChallengesAreBounded: a lease that is renewed for a year needs no more memory than a lease that is renewed for an
// hour.
func TestChallengesAreBounded(t *testing.T) {
	for _, fenceAfter := range []time.Duration{5 * time.Second, fence, 100 * time.Hour} {
		a := &Agent{}
		a.TakeOver(1, at(0))
		now := at(0)
		for n := int64(1); n < 5000; n++ {
			a.Issued(of(1, n), now)
			a.Answered(of(1, n), fenceAfter, now.Add(10*time.Millisecond))
			now = now.Add(a.Interval())
		}
		if n := len(a.marks); n > maxMarks || a.State(now) != v1alpha1.LeaseValid {
			t.Errorf("fenceAfter %s: %d marks, and the lease is %s", fenceAfter, n, a.State(now))
		}
	}
}
