// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
)

// The tables of the hub use a fenceAfter of 100 s and a margin of 20 s: 122 s from read to stopped.
const margin = 20 * time.Second

// reading is a lease whose agent considers the hub alive.
func reading(challenge, answer Challenge) Reading {
	return Reading{Challenge: challenge, Answer: answer, FenceAfter: fence, Interval: 10 * time.Second, Valid: true}
}

// answer answers with the usual fenceAfter.
func answer(h *Hub) { h.Answer(fence) }

// served reads 1.1 at 0 and 1.2 at 10, and answers both.
func served(h *Hub) {
	h.Read(reading(of(1, 1), Challenge{}), at(0))
	answer(h)
	h.Read(reading(of(1, 1), of(1, 1)), at(0.1))
	h.Read(reading(of(1, 2), of(1, 1)), at(10))
	answer(h)
	h.Read(reading(of(1, 2), of(1, 2)), at(10.1))
}

// TestAnswer: the hub answers a challenge once, and answers the challenge that it has read.
func TestAnswer(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(h *Hub)
		want   Challenge
	}{
		"NothingRead": {reason: "There is nothing to answer.", do: func(*Hub) {}},
		"NoAgent": {
			reason: "A lease without an agent is left alone.",
			do:     func(h *Hub) { h.Read(Reading{FenceAfter: fence}, at(0)) },
		},
		"New": {
			reason: "A challenge is answered when it is read.",
			do:     func(h *Hub) { h.Read(reading(of(1, 1), Challenge{}), at(0)) },
			want:   of(1, 1),
		},
		"Answered": {reason: "Nothing is written twice.", do: served},
		"AnsweredByAnother": {
			reason: "Nor what another process has written.",
			do:     func(h *Hub) { h.Read(reading(of(1, 7), of(1, 7)), at(0)) },
		},
		"NotSeenYet": {
			reason: "What was written and is not seen yet was written.",
			do: func(h *Hub) {
				h.Read(reading(of(1, 1), Challenge{}), at(0))
				answer(h)
				h.Confirmed(of(1, 1))
				h.Read(reading(of(1, 1), Challenge{}), at(0.1))
			},
		},
		"OldAnswerCameLate": {
			reason: "Another process of the hub repeats an old challenge: two do not write against each other.",
			do: func(h *Hub) {
				served(h)
				h.Read(reading(of(1, 2), of(1, 1)), at(11))
			},
		},
		"NotWritten": {
			reason: "An answer that did not arrive is given again.",
			do: func(h *Hub) {
				h.Read(reading(of(1, 1), Challenge{}), at(0))
				answer(h)
			},
			want: of(1, 1),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := NewHub(margin)
			tc.do(h)
			if got, due := h.Answer(fence); got != tc.want || due == got.IsZero() {
				t.Errorf("%s\ngot %q, due: %t; want %q", tc.reason, got, due, tc.want)
			}
		})
	}
}

// TestStoppedAt: the time counts from the last read of a challenge that the hub may have answered.
func TestStoppedAt(t *testing.T) {
	alive := func(h *Hub) {
		h.Read(reading(Challenge{}, Challenge{}), at(-10))
		served(h)
	}
	with := func(r Reading, fenceAfter time.Duration) Reading {
		r.FenceAfter = fenceAfter
		return r
	}
	cases := map[string]struct {
		reason string
		do     func(h *Hub)
		want   float64
		// unknown: StoppedAt knows no time.
		unknown bool
	}{
		"LastRead": {
			reason: "1.2 was read at 10.", do: alive, want: 10 + 122,
		},
		"Unanswered": {
			reason: "A challenge that was not answered lets nothing run.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 3), of(1, 2)), at(20))
			},
			want: 10 + 122,
		},
		"MayHaveBeenAnswered": {
			reason: "An answer was sent, and it is not known what became of it.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 3), of(1, 2)), at(20))
				answer(h)
			},
			want: 20 + 122,
		},
		"AnsweredLate": {
			reason: "The age of an answer is that of its challenge, which was read first at 20.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 3), of(1, 2)), at(20))
				h.Read(reading(of(1, 3), of(1, 2)), at(50))
				answer(h)
			},
			want: 20 + 122,
		},
		"AnsweredByAnother": {
			reason: "Another process of the hub has answered a challenge that this one has not read. It was written before now.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 5), of(1, 4)), at(60))
			},
			want: 60 + 122,
		},
		"Lengthened": {
			reason: "The longer one counts before it is sent.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 3), of(1, 2)), at(20))
				h.Answer(1000 * time.Second)
			},
			want: 20 + 1020 + 20,
		},
		"LengthenedByAnother": {
			reason: "Whoever has written it, the agent goes by it.",
			do: func(h *Hub) {
				alive(h)
				h.Read(with(reading(of(1, 2), of(1, 2)), 1000*time.Second), at(20))
			},
			want: 10 + 1020 + 20,
		},
		"Shortened": {
			reason: "An agent that has not seen the shorter one goes by the longer one, from the challenge of 10.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 3), of(1, 2)), at(20))
				h.Answer(10 * time.Second)
				h.Read(with(reading(of(1, 3), of(1, 3)), 10*time.Second), at(21))
			},
			want: 10 + 122,
		},
		"ShortenedLongAgo": {
			reason: "What was promised with the longer one is over.",
			do: func(h *Hub) {
				alive(h)
				for i := range int64(20) {
					h.Read(with(reading(of(1, 3+i), of(1, 2+i)), 10*time.Second), at(float64(20+i*10)))
					h.Answer(10 * time.Second)
				}
			},
			want: 210 + 10.2 + 20,
		},
		"Restarted": {
			reason: "The process before may have answered until now.",
			do:     func(h *Hub) { h.Believe(fence, at(0)) }, want: 122,
		},
		"RestartedAndRead": {
			reason: "The answer that is there was given before now; who has read more knows more.",
			do: func(h *Hub) {
				h.Believe(fence, at(0))
				h.Read(reading(of(1, 7), of(1, 7)), at(5))
			},
			want: 5 + 122,
		},
		"NeverSeen": {reason: "There may be no agent.", do: func(*Hub) {}, unknown: true},
		"NotSeenLive": {
			reason: "The challenge may be a year old.", unknown: true,
			do: func(h *Hub) { h.Read(reading(of(1, 7), of(1, 7)), at(5)) },
		},
		"Silent": {
			reason: "The agent was dead when contact was lost.",
			do: func(h *Hub) {
				alive(h)
				h.Contact(at(-10), at(41))
			},
			unknown: true,
		},
		"BelievedAndSilent": {
			reason: "What is seen counts more than what an earlier process has seen.",
			do: func(h *Hub) {
				h.Believe(fence, at(0))
				h.Read(reading(of(1, 7), of(1, 7)), at(5))
				h.Contact(at(5), at(36))
			},
			unknown: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := NewHub(margin)
			tc.do(h)
			got, known := h.StoppedAt()
			if known == tc.unknown || known && !got.Equal(at(tc.want)) {
				t.Errorf("%s\nstopped at %s, known: %t; want %s", tc.reason, got.Sub(start), known, at(tc.want).Sub(start))
			}
		})
	}
}

// TestAgentState: an agent is alive while new challenges come during contact.
func TestAgentState(t *testing.T) {
	alive := func(h *Hub) {
		h.Read(reading(Challenge{}, Challenge{}), at(-10))
		served(h)
	}
	cases := map[string]struct {
		reason string
		do     func(h *Hub)
		want   AgentState
	}{
		"NothingRead": {reason: "Nothing is known.", do: func(*Hub) {}, want: AgentUnknown},
		"Listed": {
			reason: "The challenge may be a year old.", want: AgentUnknown,
			do: func(h *Hub) { h.Read(reading(of(1, 7), of(1, 7)), at(5)) },
		},
		"OldAndQuiet": {
			reason: "It is.", want: AgentSilent,
			do: func(h *Hub) {
				h.Read(reading(of(1, 7), of(1, 7)), at(5))
				h.Contact(at(0), at(36))
			},
		},
		"NoChallenge": {
			reason: "Nobody writes any.", want: AgentAbsent,
			do: func(h *Hub) {
				h.Read(Reading{FenceAfter: fence}, at(5))
				h.Contact(at(0), at(36))
			},
		},
		"Alive": {reason: "A challenge was written.", do: alive, want: AgentAlive},
		"Patience": {
			reason: "Three intervals are not over.", want: AgentAlive,
			do: func(h *Hub) {
				alive(h)
				h.Contact(at(-10), at(40))
			},
		},
		"Silent": {
			reason: "They are.", want: AgentSilent,
			do: func(h *Hub) {
				alive(h)
				h.Contact(at(-10), at(40.1))
			},
		},
		"AtIntervals": {
			reason: "However often one looks.", want: AgentSilent,
			do: func(h *Hub) {
				alive(h)
				for i := range 7 {
					h.Contact(at(-10), at(float64(10+5*i)))
				}
				h.Contact(at(-10), at(40.1))
			},
		},
		"ContactLost": {
			reason: "Nothing can be seen of an agent while there is no contact.", want: AgentAlive,
			do: func(h *Hub) {
				alive(h)
				h.Contact(at(-10), at(15))
				h.Contact(at(1000), at(1005))
			},
		},
		"ContactLostAgainAndAgain": {
			reason: "A worker that comes and goes for moments, without a challenge, has no living agent.", want: AgentSilent,
			do: func(h *Hub) {
				alive(h)
				for i := range 7 {
					h.Contact(at(float64(1000+100*i)), at(float64(1005+100*i)))
				}
			},
		},
		"Again": {
			reason: "One challenge and it is alive.", want: AgentAlive,
			do: func(h *Hub) {
				alive(h)
				h.Contact(at(-10), at(100))
				h.Read(reading(of(2, 1), of(1, 2)), at(101))
				h.Contact(at(-10), at(102))
			},
		},
		"Refused": {
			reason: "What cannot be read or written says nothing.", want: AgentForbidden,
			do: func(h *Hub) {
				alive(h)
				h.Refused(AgentForbidden)
			},
		},
		"GrantedAgain": {
			reason: "What was seen was seen.", want: AgentAlive,
			do: func(h *Hub) {
				alive(h)
				h.Refused(AgentForbidden)
				h.Refused(AgentUnknown)
			},
		},
		"NoInterval": {
			reason: "An agent that does not say how often it writes does so ten times in a fence time.", want: AgentAlive,
			do: func(h *Hub) {
				for i := range int64(2) {
					r := reading(of(1, 1+i), Challenge{})
					r.Interval = 0
					h.Read(r, at(0))
				}
				h.Contact(at(0), at(29))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := NewHub(margin)
			tc.do(h)
			check.Equal(t, tc.want, h.AgentState(), "%s", tc.reason)
		})
	}
}

// TestLongest: Longest is the fenceAfter that a later process of the hub has to assume.
func TestLongest(t *testing.T) {
	h := NewHub(margin)
	served(h)
	h.Read(reading(of(1, 3), of(1, 2)), at(20))
	h.Answer(10 * time.Second)
	if got := h.Longest(); got != fence {
		t.Errorf("longest is %s just after it was shortened, want %s", got, fence)
	}
	short := reading(of(1, 4), of(1, 3))
	short.FenceAfter = 10 * time.Second
	h.Read(short, at(131))
	h.Answer(10 * time.Second)
	check.Equal(t, fence, h.Longest(), "longest until 132")
	short.Challenge, short.Answer = of(1, 5), of(1, 4)
	h.Read(short, at(141))
	h.Answer(10 * time.Second)
	if got := h.Longest(); got != 10*time.Second {
		t.Errorf("longest is %s long afterwards, want 10s", got)
	}
}

// TestValid: Valid is the challenge for a new copy.
func TestValid(t *testing.T) {
	alive := func(h *Hub) {
		h.Read(reading(Challenge{}, Challenge{}), at(-10))
		served(h)
	}
	cases := map[string]struct {
		reason string
		do     func(h *Hub)
		at     float64
		want   Challenge // zero: none is valid
	}{
		"Listed": {
			reason: "It may be a year old.",
			do:     func(h *Hub) { h.Read(reading(of(1, 1), of(1, 1)), at(0)) },
		},
		"Answered": {reason: "The agent knows it.", do: alive, at: 11, want: of(1, 2)},
		"MayBeAnswered": {
			reason: "The agent may not know of 1.3 that it was answered.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 3), of(1, 2)), at(20))
				answer(h)
			},
			at: 20, want: of(1, 2),
		},
		"Confirmed": {
			reason: "It was written.",
			do: func(h *Hub) {
				alive(h)
				h.Read(reading(of(1, 3), of(1, 2)), at(20))
				answer(h)
				h.Confirmed(of(1, 3))
			},
			at: 20, want: of(1, 3),
		},
		"NotValid": {
			reason: "The agent says that it runs nothing.",
			do: func(h *Hub) {
				alive(h)
				r := reading(of(1, 3), of(1, 2))
				r.Valid = false
				h.Read(r, at(20))
			},
			at: 20,
		},
		"Old": {
			reason: "After an outage, what was answered before is too old: a copy that carries it would be refused.",
			do:     alive, at: 60,
		},
		"NotThatOld": {reason: "Half of the time is left.", do: alive, at: 59, want: of(1, 2)},
		"Silent": {
			reason: "A dead agent runs nothing.",
			do: func(h *Hub) {
				alive(h)
				h.Contact(at(0), at(41))
			},
			at: 41,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := NewHub(margin)
			tc.do(h)
			if got, ok := h.Valid(at(tc.at)); ok == tc.want.IsZero() || ok && got != tc.want {
				t.Errorf("%s\ngot %q, valid: %t; want %q", tc.reason, got, ok, tc.want)
			}
		})
	}
}

// TestHubOutlastsAgent: messages between hub and agent are lost or late. The agent's lease always ends before the hub
// assumes that the copies are stopped.
func TestHubOutlastsAgent(t *testing.T) {
	answered := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		type sent struct {
			challenge  Challenge
			fenceAfter time.Duration
			version    int
		}
		var (
			agent         Agent
			lease         = Reading{FenceAfter: fence}
			version, read int
			late          []sent
			h             = NewHub(0)
			fenceAfter    = fence
			next          = int64(1)
		)
		agent.Shown(Challenge{}, at(0))
		agent.Answered(Challenge{}, fence, at(0))
		agent.TakeOver(1, at(0))
		for step := range 400 {
			now := at(float64(step))
			switch random.IntN(6) {
			case 0:
				agent.Issued(of(1, next), now)
				lease.Challenge = of(1, next)
				next++
				version++
			case 1:
				h.Read(lease, now)
				read = version
			case 2: // Some answers are lost.
				if c, due := h.Answer(fenceAfter); due && random.IntN(4) > 0 {
					late = append(late, sent{c, fenceAfter, read})
				}
			case 3: // A late answer arrives.
				if len(late) > 0 {
					i := random.IntN(len(late))
					if late[i].version == version {
						lease.Answer, lease.FenceAfter = late[i].challenge, late[i].fenceAfter
						version++
						answered++
					}
					late = append(late[:i:i], late[i+1:]...)
				}
			case 4:
				agent.Answered(lease.Answer, lease.FenceAfter, now)
			case 5:
				fenceAfter = time.Duration(10+random.IntN(20)*10) * time.Second
			}
			stopped, _ := h.StoppedAt()
			if !agent.answered.IsZero() && agent.validUntil().After(stopped) {
				t.Fatalf("seed %d, step %d: the agent's lease is valid until %s, the hub takes copies for stopped at %s",
					seed, step, agent.validUntil().Sub(start), stopped.Sub(start))
			}
		}
	}
	if answered < 1000 {
		t.Errorf("only %d answers have arrived: that shows little", answered)
	}
}
