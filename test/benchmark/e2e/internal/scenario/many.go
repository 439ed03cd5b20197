// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/load"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/benchmark/fakeservers"
)

// Many is Trainyard with many workers, which are fake API servers in the benchmark's process.
type Many struct {
	Workers int `json:"workers"`
	// Connected is the time from the registration of the first worker until all workers took jobs, in seconds.
	Connected float64 `json:"connectedSeconds"`
	// BytesPerWorker is what a connected worker adds to the heap, with ten nodes and no jobs.
	BytesPerWorker      float64 `json:"heapBytesPerWorker"`
	GoroutinesPerWorker float64 `json:"goroutinesPerWorker"`
	// IdleCores is the CPU that the manager takes, in cores, while there are no jobs, and IdleRequests what it asks of the
	// hub then, per second.
	IdleCores     float64 `json:"idleCores"`
	IdleRequests  float64 `json:"idleHubRequestsPerSecond"`
	RSS           float64 `json:"rssMB"`
	JobsPerSecond float64 `json:"jobsPerSecond"`
	// Reconnected is how long it took until all workers took jobs again, in seconds, after all had begun to answer again
	// at the same time. ReconnectCPU are the CPU seconds of the manager in that time.
	Reconnected  float64 `json:"reconnectedSeconds"`
	ReconnectCPU float64 `json:"reconnectCPUSeconds"`
}

// ManyWorkers measures so many workers, with a burst of jobs.
func ManyWorkers(ctx context.Context, workers, jobs int) (m Many, err error) {
	m.Workers = workers
	f, err := fleet.Start(ctx, fleet.Options{})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	fakes, err := fakeservers.Start(fakeservers.Options{Workers: workers, Nodes: 10, GPUs: 8, RunFor: time.Millisecond})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, fakes.Close()) }()
	registered, err := kubeconfigs(fakes, f.Hub.Cluster.Dir)
	if err != nil {
		return m, err
	}
	// Without workers first, for what the manager takes itself.
	system := trainyard.New(f.Hub, nil, trainyard.Options{})
	w, err := NewWorld(ctx, f, system)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := m.connect(ctx, w, system, registered); err != nil {
		return m, err
	}
	names := load.Names("many", jobs)
	if err := w.Load.Burst(ctx, names); err != nil {
		return m, err
	}
	if err := w.Jobs.Complete(ctx, names); err != nil {
		return m, err
	}
	m.JobsPerSecond = float64(jobs) / span(w.Jobs.Of(names)).Seconds()
	return m, m.storm(ctx, w, system, fakes)
}

// kubeconfigs writes the kubeconfigs of fake workers.
func kubeconfigs(fakes *fakeservers.Fleet, folder string) ([]trainyard.Worker, error) {
	var all []trainyard.Worker
	for _, worker := range fakes.Workers {
		text, err := worker.Kubeconfig()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(folder, worker.Name+".kubeconfig")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		all = append(all, trainyard.Worker{Name: worker.Name, Kubeconfig: path})
	}
	return all, nil
}

// connect registers the workers with a manager that has none, and measures what they add to it.
func (m *Many) connect(ctx context.Context, w *World, system *trainyard.Trainyard, workers []trainyard.Worker) error {
	empty, alone, err := state(ctx, system)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := system.Register(ctx, workers); err != nil {
		return err
	}
	if err := system.Connected(ctx); err != nil {
		return err
	}
	m.Connected = time.Since(began).Seconds()
	if _, err := w.settle(ctx); err != nil {
		return err
	}
	heap, goroutines, err := state(ctx, system)
	if err != nil {
		return err
	}
	m.BytesPerWorker = float64(heap-empty) / float64(m.Workers)
	m.GoroutinesPerWorker = float64(goroutines-alone) / float64(m.Workers)
	return m.idle(ctx, w)
}

// idleTime is how long the manager is watched while it only has to see whether the workers answer.
const idleTime = 30 * time.Second

// idle measures what connected workers cost without any jobs.
func (m *Many) idle(ctx context.Context, w *World) error {
	requests, err := measure.ReadRequests(ctx, w.Fleet)
	if err != nil {
		return err
	}
	usage, err := w.usage()
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idleTime):
	}
	after, err := w.usage()
	if err != nil {
		return err
	}
	asked, err := measure.ReadRequests(ctx, w.Fleet)
	if err != nil {
		return err
	}
	seconds, sum := time.Since(began).Seconds(), measure.Sum(asked.Minus(requests).Hub)
	m.IdleCores, m.IdleRequests = (after.CPU-usage.CPU)/seconds, float64(sum.Reads+sum.Writes)/seconds
	return nil
}

func state(ctx context.Context, system *trainyard.Trainyard) (heap int64, goroutines int, err error) {
	if heap, err = measure.Heap(ctx, system.Pprof()); err != nil {
		return 0, 0, err
	}
	goroutines, err = measure.Goroutines(ctx, system.Pprof())
	return heap, goroutines, err
}

// storm makes all workers silent until the manager has noticed, and lets all of them answer at once.
func (m *Many) storm(ctx context.Context, w *World, system *trainyard.Trainyard, fakes *fakeservers.Fleet) error {
	for _, worker := range fakes.Workers {
		worker.Hang()
	}
	noticed := system.Disconnected(ctx)
	before, err := w.usage()
	began := time.Now()
	for _, worker := range fakes.Workers {
		worker.Resume()
	}
	if err := errors.Join(noticed, err); err != nil {
		return err
	}
	if err := system.Connected(ctx); err != nil {
		return err
	}
	m.Reconnected = time.Since(began).Seconds()
	after, err := w.usage()
	m.ReconnectCPU, m.RSS = after.CPU-before.CPU, float64(after.RSS)/1e6
	return err
}
