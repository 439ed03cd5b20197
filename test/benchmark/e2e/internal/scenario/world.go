// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/floor"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/load"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/stub"
)

const (
	// A system has done its work when it has sent no request for settleTime, except requests that are always sent.
	settleTime = 2 * time.Second
	// collectTime is what a system has for the deletion of copies that it does not delete at once.
	collectTime = 75 * time.Second
	// trustTime is how long systems may be wary after a start, and ask more than later.
	trustTime = 12 * time.Second
)

// System is what is measured: a dispatcher that runs as a process.
type System interface {
	// Install is called once, before the first Start.
	Install(ctx context.Context) error
	// Start starts the process, and returns when it says that it is ready.
	Start(ctx context.Context) error
	// Connected returns when all workers take jobs.
	Connected(ctx context.Context) error
	// Stop ends the process in an orderly way.
	Stop() error
	// PID of the process, and the address of its profiles.
	PID() int
	Pprof() string
	// Labels that jobs need: each job gets one of these sets.
	Labels() []map[string]string
}

// World is a fleet on which one system works.
type World struct {
	Fleet *fleet.Fleet
	Jobs  *measure.Jobs
	Load  *load.Load
	// System is nil for the floor.
	System System

	runFor atomic.Int64
	cancel context.CancelFunc
	runs   int
}

// NewWorld starts a system and what measures it. Nil stands for the floor.
func NewWorld(ctx context.Context, f *fleet.Fleet, system System) (*World, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &World{Fleet: f, Jobs: measure.NewJobs(), System: system, cancel: cancel}
	if err := w.start(ctx); err != nil {
		cancel()
		return nil, err
	}
	return w, nil
}

func (w *World) start(ctx context.Context) (err error) {
	labels := []map[string]string{nil}
	if w.System != nil {
		labels = w.System.Labels()
	}
	if w.Load, err = load.New(w.Fleet.Hub.API, w.Jobs, labels); err != nil {
		return err
	}
	for _, worker := range w.Fleet.Workers {
		if err := w.play(ctx, worker); err != nil {
			return err
		}
	}
	if err := w.Fleet.Hub.API.Watch(ctx, api.TrainJobs, w.Jobs.OnHub, w.Jobs.Fail); err != nil {
		return err
	}
	if w.System == nil {
		return floor.Start(ctx, w.Fleet, w.Load.Body, w.Jobs.Fail)
	}
	if err := w.System.Install(ctx); err != nil {
		return err
	}
	if err := w.System.Start(ctx); err != nil {
		return err
	}
	return w.System.Connected(ctx)
}

// play plays what a worker lacks, and sees its copies.
func (w *World) play(ctx context.Context, worker *fleet.Cluster) error {
	onWorker := func(e *api.Event) { w.Jobs.OnWorker(worker.Name, e) }
	for _, agent := range worker.Agents {
		go func() {
			select {
			case <-ctx.Done():
			case <-agent.Done():
				w.Jobs.Fail(agent.Ended())
			}
		}()
	}
	if len(worker.Agents) > 0 {
		stub := stub.OfJobSets(worker.API, &w.runFor)
		end := func(e *api.Event) { stub.Observe(ctx, e, w.Jobs.Fail) }
		if err := worker.API.Watch(ctx, api.JobSets, end, w.Jobs.Fail); err != nil {
			return err
		}
		return worker.API.Watch(ctx, api.TrainJobs, onWorker, w.Jobs.Fail)
	}
	stub := stub.New(worker.API, &w.runFor)
	return worker.API.Watch(ctx, api.TrainJobs, func(e *api.Event) {
		onWorker(e)
		stub.Observe(ctx, e, w.Jobs.Fail)
	}, w.Jobs.Fail)
}

// Close ends the system and the watches.
func (w *World) Close() error {
	w.cancel()
	if w.System == nil {
		return nil
	}
	return w.System.Stop()
}

// names of jobs that there have not been.
func (w *World) names(count int) []string {
	w.runs++
	return load.Names(fmt.Sprintf("run-%d", w.runs), count)
}

// WarmUp runs jobs that do not count: connections are made, code is loaded, and what is done once for a worker is done.
func (w *World) WarmUp(ctx context.Context) error {
	if w.System != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(trustTime):
		}
	}
	w.runFor.Store(0)
	names := w.names(5 * len(w.Fleet.Workers))
	if err := w.Load.Burst(ctx, names); err != nil {
		return err
	}
	if err := w.Jobs.Complete(ctx, names); err != nil {
		return err
	}
	_, err := w.settle(ctx)
	return err
}

// settle waits until the system has deleted its copies, and the servers get only the requests that are always sent. It
// returns the requests until then.
func (w *World) settle(ctx context.Context) (measure.Requests, error) {
	last, err := measure.ReadRequests(ctx, w.Fleet)
	if err != nil {
		return last, err
	}
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait for the system to have done its work: %w", ctx.Err())
		case <-time.After(settleTime):
		}
		now, err := measure.ReadRequests(ctx, w.Fleet)
		if err != nil {
			return last, err
		}
		since := now.Minus(last)
		hub, workers := measure.Sum(since.Hub), measure.Sum(since.Workers)
		last = now
		collected := w.System == nil || w.Jobs.Copies() == 0 || time.Since(began) > collectTime
		if collected && hub.Reads+hub.Writes+workers.Reads+workers.Writes == 0 {
			return last, nil
		}
	}
}

// usage of the system's process, zero for the floor.
func (w *World) usage() (measure.Usage, error) {
	if w.System == nil {
		return measure.Usage{}, nil
	}
	return measure.UsageOf(w.System.PID())
}
