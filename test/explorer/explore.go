// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"context"
	"math/rand/v2"

	"github.com/trainyard/trainyard/test/explorer/world"
)

// Plan says what to explore.
type Plan struct {
	Seed uint64
	// Actions is how many actions are drawn before everything is repaired.
	Actions int
	Broken  world.Broken
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
	return world.New(ctx, 2+chance.IntN(2), p.Broken, chance.IntN)
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
