// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard/test/explorer/world"
)

// Plan says what to explore.
type Plan struct {
	Seed uint64
	// Actions is how many actions are drawn before everything is repaired.
	Actions int
	Broken  world.Broken
	// GiveUpAfter is that of the world.
	GiveUpAfter time.Duration
	// Without has the actions that are not drawn.
	Without map[world.Op]bool
	// Favourites are the most frequent faults, two or more. None: each world has its own favourites.
	Favourites []world.Op
}

// Course is the sequence of what has happened in a world.
type Course struct {
	Plan    Plan
	Actions []world.Action
	// Violation is what was wrong, empty if nothing was wrong.
	Violation string
	// Steps is the number of steps. Digest is a digest of all changes.
	Steps  int
	Digest uint64
	// Seen counts what has happened to jobs.
	Seen map[string]int
}

// newWorld makes the world of a plan.
func newWorld(ctx context.Context, p Plan) *world.World {
	chance := rand.New(rand.NewPCG(p.Seed, 1))
	w := world.New(ctx, 2+chance.IntN(2), p.Broken, chance.IntN)
	w.GiveUpAfter = p.GiveUpAfter
	return w
}

// Explore draws and does actions. Then it waits until everything comes to rest.
func Explore(ctx context.Context, p Plan) Course {
	w := newWorld(ctx, p)
	g := world.NewGenerator(w, rand.New(rand.NewPCG(p.Seed, 2)), p.Without, p.Favourites...)
	c := Course{Plan: p}
	for range p.Actions {
		if w.Failed() {
			break
		}
		if a := g.Next(); w.Do(a) {
			c.Actions = append(c.Actions, a)
		}
	}
	w.Rest()
	c.Violation, c.Steps, c.Digest, c.Seen = w.Violation(), w.Steps, w.Digest(), w.Seen
	return c
}

// Replay does those actions that are possible in the world of a plan. It calls tell with each event; tell may be nil.
func Replay(ctx context.Context, p Plan, actions []world.Action, tell func(string)) Course {
	w := newWorld(ctx, p)
	w.Tell = tell
	c := Course{Plan: p}
	for _, a := range actions {
		if w.Failed() {
			break
		}
		if w.Do(a) {
			c.Actions = append(c.Actions, a)
		}
	}
	w.Rest()
	c.Violation, c.Steps, c.Digest, c.Seen = w.Violation(), w.Steps, w.Digest(), w.Seen
	return c
}

// Shrink drops actions that do not matter for what is wrong in a sequence. It leaves out parts, large parts first, and
// keeps the rest if that fails in the same way. It uses at most this many replays.
func Shrink(ctx context.Context, c Course, replays int) Course {
	for size := len(c.Actions) / 2; size > 0 && replays > 0; size /= 2 {
		for at := 0; at < len(c.Actions) && replays > 0; replays-- {
			rest := slices.Concat(c.Actions[:at], c.Actions[min(at+size, len(c.Actions)):])
			if shorter := Replay(ctx, c.Plan, rest, nil); alike(shorter.Violation, c.Violation) && len(shorter.Actions) < len(c.Actions) {
				c = shorter
			} else {
				at += size
			}
		}
	}
	return c
}

// numbers are what differs between two descriptions of the same thing: numbers, workers, managers and jobs.
var numbers = regexp.MustCompile(`[0-9]+|"?\bw[0-9]"?|\bm[0-9]\b|\b[abc]\b`)

// alike: two courses go wrong in the same way.
func alike(a, b string) bool {
	return a != "" && b != "" && firstLine(a) == firstLine(b)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	line, _, _ = strings.Cut(line, ";")
	line, _, _ = strings.Cut(line, "(")
	return numbers.ReplaceAllString(line, "N")
}

// Story describes a sequence in words. If it is long, Story first leaves out the leases, which are renewed all the
// time, and then the middle.
func Story(ctx context.Context, c Course) string {
	var lines []string
	Replay(ctx, c.Plan, c.Actions, func(line string) { lines = append(lines, line) })
	const most = 400
	if len(lines) > most {
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, " ExecutionLease ") })
	}
	if len(lines) > most {
		lines = slices.Concat(lines[:most/4], []string{"..."}, lines[len(lines)-3*most/4:])
	}
	return strings.Join(lines, "\n")
}
