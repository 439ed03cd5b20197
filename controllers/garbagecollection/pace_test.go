// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Many copies that end at the same time are deleted one after the other, none later than is promised, and then there is nothing to wait for.
func TestDeletionsAreSpread(t *testing.T) {
	p, now := newPace(), time.Now()
	const spread = deletionsAtOnce + deletionsPerSecond*int(maxDeletionDelay/time.Second)
	turns := map[time.Duration]int{}
	for i := range 2 * spread {
		key := types.NamespacedName{Name: strconv.Itoa(i)}
		delay := p.delay(key, now)
		turns[delay.Truncate(time.Second)]++
		if again := p.delay(key, now.Add(delay/2)); again != delay-delay/2 {
			t.Fatalf("after half of its %s a copy has to wait for %s", delay, again)
		}
		if left := p.delay(key, now.Add(delay)); left != 0 {
			t.Fatalf("at its turn, after %s, a copy has to wait for %s", delay, left)
		}
	}
	for second := range maxDeletionDelay / time.Second {
		want := deletionsPerSecond
		if second == 0 {
			want += deletionsAtOnce - 1 // The next one's turn is a tenth of a second later.
		}
		if got := turns[second*time.Second]; got != want {
			t.Errorf("%d copies are deleted in second %d, want %d", got, second, want)
		}
	}
	if got := turns[maxDeletionDelay]; got < spread {
		t.Errorf("%d copies are deleted after %s, want all that are left", got, maxDeletionDelay)
	}
	for i := range 2 * spread {
		p.forget(types.NamespacedName{Name: strconv.Itoa(i)})
	}
	if len(p.turns) > 0 {
		t.Errorf("%d copies are remembered", len(p.turns))
	}
	later := now.Add(maxDeletionDelay + deletionsAtOnce*time.Second/deletionsPerSecond)
	if got := p.delay(types.NamespacedName{Name: "later"}, later); got != 0 {
		t.Errorf("a single copy later waits for %s", got)
	}
}
