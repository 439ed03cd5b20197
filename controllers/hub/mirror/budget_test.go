// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// A worker has a number of writes and of bytes in a time, whatever it changes. Ends and first statuses do not wait, and
// the changes wait for them.
func TestBudget(t *testing.T) {
	const small, large = 1 << 10, 1 << 20
	for name, test := range map[string]struct {
		reason string
		size   int
		want   int
	}{
		"Writes": {reason: "a thousand at once and a hundred a second", size: small, want: writesBurst + 60*writesPerSecond},
		"Bytes":  {reason: "eight MiB at once and half a MiB a second", size: large, want: 8 + 30},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBudget()
			turns := make([]turn, 20000) // So many copies change all the time.
			written := 0
			for second := range 60 {
				for part := range 10 {
					now := noon.Add(time.Duration(second)*time.Second + time.Duration(part)*100*time.Millisecond)
					for i := range turns {
						if turns[i].due(b, test.size, now) == 0 {
							written++
							turns[i] = turn{}
						}
					}
				}
			}
			if written > test.want || written < test.want*9/10 {
				t.Errorf("%d writes in a minute, want about %d: %s", written, test.want, test.reason)
			}
		})
	}
}

func TestBudgetOfEndsAndFirsts(t *testing.T) {
	b := NewBudget()
	for range writesBurst + 2*writesPerSecond {
		b.spend(noon, 1)
	}
	if wait, ok := b.promise(noon, 1); !ok || wait < 2*time.Second || wait > 3*time.Second {
		t.Errorf("a change waits for %v (%t), want two seconds for the ends before it", wait, ok)
	}
	for range 100 * writesPerSecond {
		b.spend(noon, 1)
	}
	if wait, ok := b.promise(noon, 1); ok || wait != longestTurn {
		t.Errorf("a change is promised in %v (%t), want that it asks again after %v", wait, ok, longestTurn)
	}
	if wait, ok := b.promise(noon.Add(longestTurn), 1); !ok || wait > time.Second {
		t.Errorf("after that time it waits for %v (%t): many ends must not take more than %v", wait, ok, longestTurn)
	}
}

func TestBudgetOutlivesConnections(t *testing.T) {
	var budgets Budgets
	if first := budgets.Of("a"); budgets.Of("a") != first || budgets.Of("b") == first {
		t.Error("each worker has one budget of its own, whatever its connection")
	}
}
