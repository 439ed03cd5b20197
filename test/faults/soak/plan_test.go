// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/faults/world"
)

// A seed is a plan, and the faults of a lane follow each other.
func TestPlan(t *testing.T) {
	const duration = time.Hour
	seen := map[string]bool{}
	for number, l := range []lane{"west", hubLane} {
		faults := faultsOf(1, l, uint64(number), duration)
		again := faultsOf(1, l, uint64(number), duration)
		check.Diff(t, faults, again, "the same seed gives another plan", cmp.AllowUnexported(fault{}))
		if cmp.Equal(faults, faultsOf(2, l, uint64(number), duration), cmp.AllowUnexported(fault{})) {
			t.Error("another seed gives the same plan")
		}
		for i, f := range faults {
			seen[string(l)+f.kind] = true
			if f.at+f.last > duration {
				t.Errorf("%v is not over in time", f)
			}
			if i > 0 && f.at < faults[i-1].at+faults[i-1].last {
				t.Errorf("%v begins before %v has ended", f, faults[i-1])
			}
		}
	}
	if want := len(workerKinds) + len(hubKinds); len(seen) != want {
		t.Errorf("%d kinds of faults in an hour, want all %d", len(seen), want)
	}
	first, second := newJobs(1), newJobs(1)
	for range 100 {
		if diff := cmp.Diff(first.next(), second.next(), cmp.AllowUnexported(shape{})); diff != "" {
			t.Fatalf("the same seed gives another job:\n%s", diff)
		}
	}
}

// The short soak has many kinds of faults, and cuts a worker off for so long that its fenced jobs are placed again. It
// kills a manager early: jobs that have no copy on record then are held for a minute.
func TestShortPlan(t *testing.T) {
	seen, longest, lastKill := map[string]bool{}, time.Duration(0), time.Duration(0)
	for number, name := range append(slices.Clone(workers), string(hubLane)) {
		for _, f := range faultsOf(shortSeed, lane(name), uint64(number), shortDuration) {
			kinds := "worker "
			if f.lane == hubLane {
				kinds = "hub "
			}
			seen[kinds+f.kind] = true
			switch f.kind {
			case "blackhole":
				longest = max(longest, f.last)
			case "manager-killed":
				lastKill = f.at
			}
		}
	}
	if len(seen) < 14 {
		t.Errorf("the short soak has %d kinds of faults, want 14 or more: search for another seed", len(seen))
	}
	if early := shortDuration / 3; lastKill == 0 || lastKill > early {
		t.Errorf("the short soak kills no manager, or one after %v, want %v at most: search for another seed", lastKill, early)
	}
	if wanted := world.FenceAfter + fenceMargin; longest < wanted {
		t.Errorf("the short soak cuts no worker off for longer than %v, want %v: search for another seed", longest, wanted)
	}
}
