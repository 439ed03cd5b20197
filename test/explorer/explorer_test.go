// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trainyard/trainyard/test/explorer/world"
)

const (
	// ciSteps are how many steps each of two explorations makes, ciSeed is the first seed. They are fixed: a red run is
	// due to a change.
	ciSteps = 550_000
	ciSeed  = 1
	// actions are the actions of one world.
	actions = 1000
	// brokenSteps are within how many steps a broken rule has to be found.
	brokenSteps = 2_000_000
	// replays are how many are spent on a shorter course.
	replays = 400
)

// number is the number in an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: %v", name, text, err)
	}
	return value
}

// TestExplore explores worlds, seed by seed, until it has done enough steps, half of them with odd seeds. With
// EXPLORER_SEED it explores only the world of that seed.
func TestExplore(t *testing.T) {
	seed, steps := number(t, "EXPLORER_SEED", ciSeed), number(t, "EXPLORER_STEPS", 2*ciSteps)/2
	if os.Getenv("EXPLORER_SEED") != "" && os.Getenv("EXPLORER_STEPS") == "" {
		explore(t, seed, 1)
		return
	}
	for name, first := range map[string]uint64{"A": seed, "B": seed + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			explore(t, first, steps)
		})
	}
}

// explore explores every other seed.
func explore(t *testing.T, seed, steps uint64) {
	t.Helper()
	seen, done, worlds := map[string]int{}, uint64(0), 0
	for ; done < steps; seed += 2 {
		c := Explore(t.Context(), Plan{Seed: seed, Actions: actions})
		if c.Violation != "" {
			short := Shrink(t.Context(), c, replays)
			t.Fatalf("seed %d: %s\n%d of %d actions suffice for: %s\n%s",
				seed, c.Violation, len(short.Actions), len(c.Actions), short.Violation, Story(t.Context(), short))
		}
		done += uint64(c.Steps)
		worlds++
		for what, n := range c.Seen {
			seen[what] += n
		}
	}
	t.Logf("%d steps in %d worlds, before seed %d; what was seen: %v", done, worlds, seed, seen)
}

// TestSameSeedSameCourse checks what replays rely on: the same seed gives the same sequence.
func TestSameSeedSameCourse(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		plan := Plan{Seed: seed, Actions: 600}
		first, second := Explore(t.Context(), plan), Explore(t.Context(), plan)
		if first.Digest != second.Digest || first.Steps != second.Steps {
			t.Errorf("seed %d: %x in %d steps, and then %x in %d", seed, first.Digest, first.Steps, second.Digest, second.Steps)
		}
		if replayed := Replay(t.Context(), plan, first.Actions, nil); replayed.Digest != first.Digest {
			t.Errorf("seed %d: %x when it was explored, %x when it was replayed", seed, first.Digest, replayed.Digest)
		}
	}
}

// TestBrokenRulesAreFound breaks a rule of the world. The explorer must find that. For some rules, worlds that show it
// are rare. So the search begins at a seed that has shown it. If a change has changed that world, the search goes on
// from there. With EXPLORER_SEED all searches begin at that seed.
func TestBrokenRulesAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		broken world.Broken
		// want is part of what has to be found.
		want string
		// look are faults that show the broken rule. With Backup, which breaks nothing, few other faults happen. Nil: most
		// faults show it.
		look []world.Op
		// seed is the first seed.
		seed uint64
	}{
		"AgentStopsNothing": {"A fenced copy runs on, and the job is placed anew.", world.Broken{AgentStopsNothing: true}, "runs twice", nil, 6},
		"NoWaitForStop":     {"The job is placed anew before its copy has stopped.", world.Broken{NoWaitForStop: true}, "runs twice", nil, 2},
		"NoPodsSeen":        {"The pods of a copy that is gone live on.", world.Broken{NoPodsSeen: true}, "runs twice", []world.Op{world.Backup, world.Backup}, 100},
		"NoCollector":       {"What has ended stays on its worker.", world.Broken{NoCollector: true}, "is left on", nil, 29},
		"CacheInsteadOfHub": {"A record that the cache does not show yet is taken for missing.", world.Broken{CacheInsteadOfHub: true}, "", []world.Op{world.Begin, world.Crash, world.Cut}, 193},
		"RefusedIsSilent":   {"Time is believed though the worker's network answers.", world.Broken{RefusedIsSilent: true}, "runs twice", []world.Op{world.Down, world.Cut}, 54},
		"NoSweep":           {"Nobody looks at what is on a worker that returns.", world.Broken{NoSweep: true}, "is left on", nil, 8},
		"NoDoubt":           {"A manager that was paused ends what another one has begun.", world.Broken{NoDoubt: true}, "runs twice", []world.Op{world.Pause, world.Pause, world.Cut}, 2323},
		"NoLocks":           {"Who writes last has written.", world.Broken{NoLocks: true}, "", nil, 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := 0
			for seed := number(t, "EXPLORER_SEED", test.seed); steps < brokenSteps; seed++ {
				c := Explore(t.Context(), Plan{Seed: seed, Actions: actions, Broken: test.broken, Favourites: test.look})
				if steps += c.Steps; c.Violation != "" && strings.Contains(c.Violation, test.want) {
					t.Logf("found after %d steps, with seed %d: %s", steps, seed, c.Violation)
					return
				}
			}
			t.Errorf("%s\nNothing like it was found in %d steps.", test.reason, steps)
		})
	}
}

// TestShrink shortens a sequence that is known to fail.
func TestShrink(t *testing.T) {
	for seed := uint64(1); seed < 100; seed++ {
		c := Explore(t.Context(), Plan{Seed: seed, Actions: actions, Broken: world.Broken{NoWaitForStop: true}})
		if c.Violation == "" {
			continue
		}
		short := Shrink(t.Context(), c, 60)
		if !alike(short.Violation, c.Violation) || len(short.Actions) > len(c.Actions)/2 {
			t.Errorf("of %d actions %d are left, and then %q, not %q", len(c.Actions), len(short.Actions), short.Violation, c.Violation)
		}
		t.Logf("seed %d, %d of %d actions:\n%s\n%s", seed, len(short.Actions), len(c.Actions), Story(t.Context(), short), short.Violation)
		return
	}
	t.Error("Nothing went wrong.")
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	debug.SetGCPercent(800) // The worlds are small, and short-lived.
	os.Exit(m.Run())
}
