// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"context"
	"math/rand/v2"

	"github.com/trainyard/trainyard/test/explorer/world"
)

// Plan is what is explored.
type Plan struct {
	Seed uint64
	// Actions are how many are drawn until everything is mended.
	Actions int
	Broken  world.Broken
	// Without are actions that are not drawn.
	Without map[world.Op]bool
	// Favourites are the faults that there are most of, two or more. None: each world has its own.
	Favourites []world.Op
}

// Course is what has happened.
type Course struct {
	Plan    Plan
	Actions []world.Action
	// Violation is what was wrong, empty if nothing was.
	Violation string
	// Steps are all that was done, Digest is of all changes.
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

// Explore draws actions and has them happen, and then waits for everything to come to rest.
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

// Replay has actions happen in the world of a plan, those that can. tell is told what happens. Nil: nobody is.
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
