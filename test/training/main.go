// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags, and the place of this process among the others.
type options struct {
	settings        settings
	place           place
	steps           int
	checkpoints     string // The folder. Empty: there are none.
	checkpointEvery int    // Steps.
	logEvery        int    // Steps.
	pace            time.Duration
	rendezvous      time.Duration
	peerTimeout     time.Duration
}

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, out, problems io.Writer) int {
	o, err := parse(args, os.Getenv, problems)
	if err == nil {
		err = train(ctx, o, out)
	}
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintf(problems, "ring-train: rank %d: stopped: %v\n", o.place.rank, context.Cause(ctx))
		return 128 + int(syscall.SIGTERM)
	default:
		fmt.Fprintf(problems, "ring-train: rank %d: %v\n", o.place.rank, err)
		return 1
	}
}

func parse(args []string, getenv func(string) string, problems io.Writer) (options, error) {
	o := options{settings: defaultSettings()}
	flags := flag.NewFlagSet("ring-train", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.IntVar(&o.steps, "steps", 200, "how many steps the training has")
	flags.Uint64Var(&o.settings.Seed, "seed", o.settings.Seed, "what data and weights are drawn from")
	flags.IntVar(&o.settings.Batch, "batch", o.settings.Batch, "samples of one step, on all nodes together")
	flags.StringVar(&o.checkpoints, "checkpoint-dir", "", "the folder of checkpoints; there are none if it is empty")
	flags.IntVar(&o.checkpointEvery, "checkpoint-every", 20, "steps between two checkpoints")
	flags.IntVar(&o.logEvery, "log-every", 10, "steps between two lines of the log")
	flags.DurationVar(&o.pace, "pace", 0, "the least time that a step takes")
	flags.DurationVar(&o.rendezvous, "rendezvous-timeout", 10*time.Minute,
		"how long to wait for the other nodes at the start")
	flags.DurationVar(&o.peerTimeout, "peer-timeout", time.Minute,
		"how long a node may be silent before it counts as lost")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("argument %q: want flags only", flags.Arg(0))
	}
	for name, value := range map[string]int{
		"steps": o.steps, "batch": o.settings.Batch, "checkpoint-every": o.checkpointEvery, "log-every": o.logEvery,
	} {
		if value < 1 {
			return o, fmt.Errorf("--%s=%d: want at least 1", name, value)
		}
	}
	for name, value := range map[string]time.Duration{"rendezvous-timeout": o.rendezvous, "peer-timeout": o.peerTimeout} {
		if value <= 0 {
			return o, fmt.Errorf("--%s=%s: want more than 0", name, value)
		}
	}
	var err error
	o.place, err = readPlace(getenv)
	o.settings.Nodes, o.settings.Shards = len(o.place.peers), o.place.shards
	return o, err
}
