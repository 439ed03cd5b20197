// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/check"
)

// A deletion waits for the end of a burst, but not longer than promised. Without a burst it does not wait.
func TestNextLook(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		waited time.Duration
		busy   bool
		want   time.Duration
	}{
		"Quiet":      {reason: "nobody needs the API servers", want: 0},
		"QuietAgain": {reason: "the burst is over", waited: 3 * time.Second, want: 0},
		"Burst":      {reason: "it has just begun to wait", busy: true, want: firstCheck},
		"Early":      {reason: "it looks once a second at most", waited: firstCheck / 4, busy: true, want: firstCheck},
		"Later":      {reason: "it can wait as long again", waited: 8 * time.Second, busy: true, want: 8 * time.Second},
		"Last":       {reason: "less than that is left", waited: 59 * time.Second, busy: true, want: time.Second},
		"Due":        {reason: "it has waited for as long as is promised", waited: maxDeletionDelay, busy: true, want: 0},
		"Overdue":    {reason: "the worker was away", waited: time.Hour, busy: true, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, nextCheck(test.waited, test.busy), "a copy is looked at again in: %s", test.reason)
		})
	}
}

// A burst goes on while jobs wait again and again. It is over when no job has waited for a time.
func TestBurstLasts(t *testing.T) {
	var b burst
	now := time.Now()
	for _, step := range []struct {
		reason        string
		passed        time.Duration
		waiting, want bool
	}{
		{reason: "nothing has happened yet"},
		{reason: "it begins", passed: time.Second, waiting: true, want: true},
		{reason: "no job waits for a moment", passed: burstPause - 1, want: true},
		{reason: "no job has waited for long enough", passed: 1},
		{reason: "the next one begins", passed: time.Minute, waiting: true, want: true},
		{reason: "it goes on", passed: burstPause - 1, waiting: true, want: true},
		{reason: "it has gone on just now", passed: burstPause - 1, want: true},
	} {
		now = now.Add(step.passed)
		check.Equal(t, step.want, b.lasts(step.waiting, now), "the burst goes on: %s", step.reason)
	}
}

// However long a burst is, the manager looks at a copy only a few times, and deletes it when it is due.
func TestLooksAreFew(t *testing.T) {
	looks, waited := 0, time.Duration(0)
	for next := nextCheck(waited, true); next > 0; next = nextCheck(waited, true) {
		looks++
		waited += next
	}
	if waited != maxDeletionDelay || looks > 7 {
		t.Errorf("a copy goes after %s and %d looks, want %s and at most 7", waited, looks, maxDeletionDelay)
	}
}

// TestLooksAreApart: the copies of a burst are not looked at in one moment, which would seem to be the next burst.
func TestLooksAreApart(t *testing.T) {
	const copies, slices = 300, 10
	looks := map[int]int{}
	for i := range copies {
		uid := types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i))
		looks[int(slices*(apart(firstCheck, uid)-firstCheck)/firstCheck)]++
	}
	for slice, count := range looks {
		if slice < 0 || slice > slices || count > 3*copies/slices {
			t.Errorf("%d of %d copies are looked at in slice %d of %d, want about as many in each", count, copies, slice, slices)
		}
	}
}
