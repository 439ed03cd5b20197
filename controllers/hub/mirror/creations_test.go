// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestCreations: a creation waits for its turn behind others that are quick, and does not wait behind others that
// hang. So a worker whose admission hangs does not hold all goroutines of its mirror.
func TestCreations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCreations(2)
		begin := func() (end func(), waited time.Duration) {
			start := time.Now()
			end, ok := c.begin(t.Context(), clock.RealClock{})
			if ok != (end != nil) {
				t.Fatalf("ok is %t, and the end is there: %t", ok, end != nil)
			}
			return end, time.Since(start)
		}
		first, _ := begin()
		second, waited := begin()
		if first == nil || second == nil || waited > 0 {
			t.Fatal("the first two do not begin at once")
		}
		go func() {
			time.Sleep(100 * time.Millisecond)
			first()
		}()
		third, waited := begin()
		if third == nil || waited != 100*time.Millisecond {
			t.Errorf("the third began: %t, after %s; want it to wait for the first", third != nil, waited)
		}
		if fourth, waited := begin(); fourth != nil || waited != slotWait-100*time.Millisecond {
			t.Errorf("the fourth began: %t, after %s; want it not to wait behind one that hangs", fourth != nil, waited)
		}
		if fifth, waited := begin(); fifth != nil || waited > 0 {
			t.Errorf("the fifth began: %t, after %s; want it to know at once that others hang", fifth != nil, waited)
		}
		second()
		if last, waited := begin(); last == nil || waited > 0 {
			t.Errorf("the last began: %t, after %s; want it to begin when there is room", last != nil, waited)
		}
	})
}
