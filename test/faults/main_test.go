// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// Tests break west and east. Jobs can always go to south, the most expensive worker. If the hub is silent, the agents
	// of west stop copies soon, and the other agents stop them only after a minute.
	west, east, south = "west", "east", "south"

	poll = 50 * time.Millisecond
)

// timeout is for conditions that come in seconds on an idle machine.
var timeout time.Duration

func init() {
	flag.DurationVar(&timeout, "patience", 90*time.Second, "How long to wait for a condition that should come in seconds.")
}

// w is the world of all tests. They use jobs of their own.
var w *world.World

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{west, east, south}, Agents: 2,
		FenceAfter: map[string]time.Duration{east: time.Minute, south: time.Minute},
		Progress:   yard.Print,
	})
	if err != nil {
		return nil, err
	}
	return w.Stop, nil
}
