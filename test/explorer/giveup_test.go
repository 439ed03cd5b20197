// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/explorer/world"
)

// giveUpAfter is shorter than many faults, so that jobs are given up among them.
const giveUpAfter = 45 * time.Second

// TestGiveUp explores worlds whose jobs are given up when no worker takes them. No worker has a copy of a job that is given
// up, and all comes to rest.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	seen, done, steps := map[string]int{}, uint64(0), number(t, "EXPLORER_STEPS", 250_000)
	for seed := number(t, "EXPLORER_SEED", ciSeed); done < steps; seed++ {
		c := Explore(t.Context(), Plan{Seed: seed, Actions: actions, GiveUpAfter: giveUpAfter})
		if c.Violation != "" {
			short := Shrink(t.Context(), c, replays)
			t.Fatalf("seed %d: %s\n%d of %d actions suffice for: %s\n%s",
				seed, c.Violation, len(short.Actions), len(c.Actions), short.Violation, Story(t.Context(), short))
		}
		done += uint64(c.Steps)
		for what, n := range c.Seen {
			seen[what] += n
		}
	}
	t.Logf("%d steps; what was seen: %v", done, seen)
	if seen["GivenUp"] < 20 {
		t.Errorf("only %d jobs were given up", seen["GivenUp"])
	}
}

// TestGiveUpWithCopy breaks the rule that no job is given up while a Tombstone says that a worker may have a copy.
func TestGiveUpWithCopy(t *testing.T) {
	t.Parallel()
	steps := 0
	for seed := number(t, "EXPLORER_SEED", ciSeed); steps < brokenSteps; seed++ {
		c := Explore(t.Context(), Plan{Seed: seed, Actions: actions, GiveUpAfter: giveUpAfter, Broken: world.Broken{NoTombstonesSeen: true}})
		if steps += c.Steps; strings.Contains(c.Violation, "gives up") {
			t.Logf("found after %d steps, with seed %d: %s", steps, seed, c.Violation)
			return
		}
	}
	t.Errorf("nothing was found in %d steps", steps)
}
