// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package requeue

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
)

// What changes all the time is written less and less often. What rests is written quickly again.
func TestPace(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// every is how often it changes, and lasts for how long.
		every, lasts time.Duration
		want         int
	}{
		"Storm":    {reason: "ten quick writes, five that back off, and then one in 30 s", every: 10 * time.Millisecond, lasts: 10 * time.Minute, want: 34},
		"Gang":     {reason: "pods that start one after the other", every: 100 * time.Millisecond, lasts: 10 * time.Second, want: 9},
		"Often":    {reason: "as a storm", every: time.Second, lasts: 10 * time.Minute, want: 34},
		"Progress": {reason: "a report of progress is shown each time", every: 5 * time.Second, lasts: 10 * time.Minute, want: 120},
	} {
		t.Run(name, func(t *testing.T) {
			var p Pace
			writes := 0
			var changed time.Time
			for passed := time.Duration(0); passed < test.lasts; passed += 10 * time.Millisecond {
				now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Add(passed)
				if changed.IsZero() && passed%test.every == 0 {
					changed = now
				}
				// Changes are gathered for a second.
				if !changed.IsZero() && now.Sub(changed) >= time.Second && p.Due(now) == 0 {
					p.Note(changed, now)
					changed = time.Time{}
					writes++
				}
			}
			if writes < test.want-2 || writes > test.want+2 {
				t.Errorf("%d writes, want about %d: %s", writes, test.want, test.reason)
			}
		})
	}
}

func TestPaceAfterARest(t *testing.T) {
	var p Pace
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for range 50 {
		since := now
		now = now.Add(p.Due(now))
		p.Note(since, now)
	}
	check.Equal(t, longestSpacing, p.Due(now), "after 50 writes without a rest, the next one may come after")
	now = now.Add(2 * longestSpacing)
	p.Note(now, now)
	check.Equal(t, 0, p.Due(now), "after a rest, the next one may come after")
}
