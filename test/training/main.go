// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are the flags, and the place of this process among the others.
type options struct {
	rank, world     int
	master          string // The address of rank 0.
	steps           int
	checkpoints     string // The folder.
	attempt         string // Of the TrainJob, as Trainyard says. Empty: it does not.
	checkpointEvery int    // Steps.
	pace            time.Duration
	rendezvous      time.Duration
	peerTimeout     time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	o, err := parse()
	if err == nil {
		err = run(ctx, o)
	}
	ended := ctx.Err() != nil
	stop()
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "toy-train: rank %d: %v\n", o.rank, err)
	if ended {
		os.Exit(128 + int(syscall.SIGTERM))
	}
	os.Exit(1)
}

func parse() (options, error) {
	var o options
	flag.IntVar(&o.steps, "steps", 200, "how many steps the training has")
	flag.StringVar(&o.checkpoints, "checkpoint-dir", cmp.Or(strings.TrimPrefix(os.Getenv("TRAINYARD_CHECKPOINT_URI"), "file://"), "."),
		"the folder of checkpoints; by default that of the file URI in TRAINYARD_CHECKPOINT_URI")
	flag.IntVar(&o.checkpointEvery, "checkpoint-every", 20, "steps between two checkpoints")
	flag.DurationVar(&o.pace, "pace", 0, "the least time that a step takes")
	flag.DurationVar(&o.rendezvous, "rendezvous-timeout", 10*time.Minute, "how long to wait for the other ranks at the start")
	flag.DurationVar(&o.peerTimeout, "peer-timeout", time.Minute, "how long a rank may be silent before it counts as lost")
	flag.Parse()
	o.attempt = os.Getenv("TRAINYARD_ATTEMPT")
	var noWorld, noRank error
	o.world, noWorld = strconv.Atoi(os.Getenv("PET_NNODES"))
	o.rank, noRank = strconv.Atoi(os.Getenv("PET_NODE_RANK"))
	o.master = net.JoinHostPort(os.Getenv("PET_MASTER_ADDR"), os.Getenv("PET_MASTER_PORT"))
	if o.rank < 0 || o.rank >= o.world {
		return o, errors.Join(errors.New("want PET_NODE_RANK from 0 to PET_NNODES - 1"), noWorld, noRank)
	}
	return o, nil
}
