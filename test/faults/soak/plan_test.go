// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A seed is a plan, and the faults of a lane follow each other.
func TestPlan(t *testing.T) {
	const duration = time.Hour
	seen := map[string]bool{}
	for number, l := range []lane{"west", hubLane} {
		faults := faultsOf(1, l, uint64(number), duration)
		again := faultsOf(1, l, uint64(number), duration)
		if diff := cmp.Diff(faults, again, cmp.AllowUnexported(fault{})); diff != "" {
			t.Errorf("the same seed gives another plan:\n%s", diff)
		}
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
