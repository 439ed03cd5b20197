// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// trainer is one rank at work.
type trainer struct {
	options
	ring  *ring
	data  data
	state checkpoint
	saved int // The step of the last checkpoint.
	out   io.Writer
}

// train trains until the last step. If it cannot go on, rank 0 leaves a checkpoint of the last step that it has done.
func train(ctx context.Context, o options, out io.Writer) error {
	state, err := load(o.checkpoints, o.settings)
	if err != nil {
		return err
	}
	connections, err := connect(ctx, o)
	if err != nil {
		return err
	}
	defer connections.close()
	t := &trainer{options: o, ring: connections, data: newData(o.settings.Seed), state: state, saved: state.Step, out: out}
	if err := t.synchronize(); err != nil {
		return err
	}
	for t.state.Step < t.steps {
		if err := t.step(ctx); err != nil {
			return errors.Join(err, t.save())
		}
	}
	return errors.Join(t.save(), t.finish())
}

func (t *trainer) log(format string, args ...any) {
	fmt.Fprintf(t.out, "rank=%d world=%d "+format+"\n", append([]any{t.ring.rank, t.ring.world}, args...)...)
}

// synchronize brings all ranks to the newest checkpoint that any rank has. Rank 0 writes them, but its pod may have
// moved to another node since, away from its volume.
func (t *trainer) synchronize() error {
	steps, err := t.ring.allGather(binary.BigEndian.AppendUint64(nil, uint64(t.state.Step)))
	if err != nil {
		return err
	}
	newest, owner := 0, 0
	for rank, step := range steps {
		if s := int(binary.BigEndian.Uint64(step)); s > newest {
			newest, owner = s, rank
		}
	}
	if newest == 0 {
		t.log("start")
		return nil
	}
	if err := t.ring.broadcast(owner, t.state.Weights); err != nil {
		return err
	}
	t.state.Step = newest
	t.log("step=%d continues from the checkpoint of rank %d", newest, owner)
	return nil
}

// step makes one step, on all ranks.
func (t *trainer) step(ctx context.Context) error {
	pause := time.NewTimer(t.pace)
	defer pause.Stop()
	gradient := partOfGradient(t.settings, t.data, t.state.Weights, t.ring.rank, t.state.Step)
	if err := t.ring.allReduce(gradient); err != nil {
		return err
	}
	update(t.settings, t.state.Weights, gradient)
	t.state.Step++
	if t.state.Step%t.logEvery == 0 {
		t.log("step=%d loss=%.6f", t.state.Step, gradient[weightCount]/float64(t.settings.Batch))
	}
	if t.state.Step%t.checkpointEvery == 0 {
		if err := t.save(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}

// save writes a checkpoint, on rank 0 only, if there is something new.
func (t *trainer) save() error {
	if t.ring.rank != 0 || t.checkpoints == "" || t.state.Step == t.saved {
		return nil
	}
	if err := t.state.save(t.checkpoints); err != nil {
		return err
	}
	t.saved = t.state.Step
	t.log("step=%d checkpoint", t.state.Step)
	return nil
}

// finish checks that all ranks have the same weights, and prints the result.
func (t *trainer) finish() error {
	sum := checksum(t.state.Weights)
	if err := t.ring.agree("the checksum of the weights", []byte(sum)); err != nil {
		return err
	}
	t.log("step=%d done loss=%.6f weights=sha256:%s", t.state.Step, testLoss(t.data, t.state.Weights), sum)
	return nil
}
