// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// The model is linear: it learns the weights of another linear model, the teacher.
const (
	weightCount  = 64
	batch        = 64 // Samples of one step, on all ranks together.
	learningRate = 0.01
)

// state is what a checkpoint has.
type state struct {
	Step    int // How many steps are done.
	Weights []float64
}

// trainer is one rank at work.
type trainer struct {
	options
	state
	peers   []*peer // Of rank 0: all others. Of the others: rank 0.
	teacher []float64
	saved   int // The step of the last checkpoint.
}

// run trains until the last step. If it cannot go on, rank 0 leaves a checkpoint of the last step that it has done.
func run(ctx context.Context, o options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := &trainer{options: o, state: state{Weights: make([]float64, weightCount)}, teacher: draw(0)}
	if o.rank == 0 {
		if err := t.load(); err != nil {
			return err
		}
	}
	var err error
	if t.peers, err = connect(ctx, o); err != nil {
		return err
	}
	if err := t.spread(&t.state); err != nil {
		return err
	}
	if t.saved = t.Step; t.Step > 0 {
		t.log("continues from the checkpoint")
	}
	for t.Step < t.steps {
		if err := t.step(ctx); err != nil {
			return errors.Join(err, t.save())
		}
	}
	t.log("done loss=%.6f weights=sha256:%x", t.loss(), sha256.Sum256(fmt.Appendf(nil, "%b", t.Weights)))
	return t.save()
}

func (t *trainer) log(format string, args ...any) {
	fmt.Printf("rank=%d world=%d step=%d "+format+"\n", append([]any{t.rank, t.world, t.Step}, args...)...)
}

// step makes one step, on all ranks.
func (t *trainer) step(ctx context.Context) error {
	pause := time.After(t.pace)
	gradient := t.gradient()
	if err := t.add(gradient); err != nil {
		return err
	}
	for i := range t.Weights {
		t.Weights[i] -= float64(learningRate * gradient[i])
	}
	t.Step++
	if err := t.note(); err != nil {
		return err
	}
	if t.Step%t.checkpointEvery == 0 {
		if err := t.save(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause:
		return nil
	}
}

// add replaces the gradient of each rank by the sum of all, which rank 0 adds up in the order of the ranks.
func (t *trainer) add(gradient []float64) error {
	for _, p := range t.peers {
		if t.rank > 0 {
			if err := p.send(gradient); err != nil {
				return err
			}
			break
		}
		var part []float64
		if err := p.receive(&part); err != nil {
			return err
		}
		for i := range gradient {
			gradient[i] += part[i]
		}
	}
	return t.spread(&gradient)
}

// spread replaces a value of all ranks by that of rank 0.
func (t *trainer) spread(value any) error {
	for _, p := range t.peers {
		move := p.send
		if t.rank > 0 {
			move = p.receive
		}
		if err := move(value); err != nil {
			return err
		}
	}
	return nil
}

// gradient computes the part of this rank. Products are converted before they are added: Go would otherwise fuse the
// two on some architectures, which rounds once less.
func (t *trainer) gradient() []float64 {
	sum := make([]float64, weightCount)
	for i := t.rank; i < batch; i += t.world {
		input := draw(uint64(1 + t.Step*batch + i))
		fault := product(t.Weights, input) - product(t.teacher, input)
		for w := range sum {
			sum[w] += float64(fault * input[w])
		}
	}
	return sum
}

// loss is how far the weights are from those of the teacher.
func (t *trainer) loss() float64 {
	away := draw(0)
	for i := range away {
		away[i] -= t.Weights[i]
	}
	return product(away, away)
}

// draw draws numbers from -1 to 1, the same ones for the same stream on each rank.
func draw(stream uint64) []float64 {
	random := rand.New(rand.NewPCG(1, stream))
	values := make([]float64, weightCount)
	for i := range values {
		values[i] = 2*random.Float64() - 1
	}
	return values
}

func product(a, b []float64) (sum float64) {
	for i := range a {
		sum += float64(a[i] * b[i])
	}
	return sum
}

func (t *trainer) file() string { return filepath.Join(t.checkpoints, "checkpoint.json") }

// save writes a checkpoint, on rank 0 only, if there is something new. A crash leaves this one or the one before.
func (t *trainer) save() error {
	if t.rank != 0 || t.Step == t.saved {
		return nil
	}
	data, err := json.Marshal(t.state) // It writes as many digits of a number as tell it from its neighbours.
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.checkpoints, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(t.file()+".new", data, 0o644); err != nil {
		return err
	}
	if err := os.Rename(t.file()+".new", t.file()); err != nil {
		return err
	}
	t.saved = t.Step
	t.log("checkpoint")
	return nil
}

// note adds a step that is done to the list of steps, with the attempt that has done it, on rank 0.
func (t *trainer) note() error {
	if t.rank != 0 || t.attempt == "" {
		return nil
	}
	if err := os.MkdirAll(t.checkpoints, 0o755); err != nil {
		return err
	}
	list, err := os.OpenFile(filepath.Join(t.checkpoints, "steps"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(list, t.attempt, t.Step)
	return errors.Join(err, list.Close())
}

// load reads the checkpoint, if there is one.
func (t *trainer) load() error {
	data, err := os.ReadFile(t.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &t.state)
}
