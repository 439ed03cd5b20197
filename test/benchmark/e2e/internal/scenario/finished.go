// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/load"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
)

// Finished is how a system behaves with finished jobs that are kept on the hub.
type Finished struct {
	Jobs int `json:"finishedJobs"`
	// Heap is the heap after a garbage collection and RSS the memory of the system's process, in MB, after a start with
	// the finished jobs. Peak is the maximum until then.
	Heap float64 `json:"heapMB"`
	RSS  float64 `json:"rssMB"`
	Peak float64 `json:"peakMB"`
	// BytesPerJob is what a finished job adds to the heap.
	BytesPerJob float64 `json:"heapBytesPerFinishedJob"`
	// Ready is how long a start took until the process said that it was ready, and First until a job that was created then
	// had a copy that may run, in seconds.
	Ready float64 `json:"readySeconds"`
	First float64 `json:"firstJobSeconds"`
	// CPU seconds that the start took, until nothing was asked of the servers any more.
	CPU float64 `json:"cpuSecondsOfStart"`
	// WorkerRequests of the start, without watches. Requests that a start without finished jobs needs too are not caused
	// by them.
	WorkerRequests int `json:"workerRequestsOfStart"`
	HubRequests    int `json:"hubRequestsOfStart"`
	// OneByOne and Burst are new jobs beside the finished jobs.
	OneByOne Run  `json:"oneByOne"`
	Burst    *Run `json:"burst,omitempty"`
}

// FinishedJobs measures with each of these numbers of finished jobs. The numbers have to rise. It begins without
// finished jobs.
func (w *World) FinishedJobs(ctx context.Context, numbers []int, burst int) ([]Finished, error) {
	template, err := w.template(ctx)
	if err != nil {
		return nil, err
	}
	var all []Finished
	there := 0
	for _, number := range append([]int{0}, numbers...) {
		if err := w.System.Stop(); err != nil {
			return nil, err
		}
		if err := w.populate(ctx, template, there, number); err != nil {
			return nil, fmt.Errorf("make %d finished jobs: %w", number, err)
		}
		there = number
		f, err := w.beside(ctx, number, burst)
		if err != nil {
			return nil, fmt.Errorf("beside %d finished jobs: %w", number, err)
		}
		if len(all) > 0 {
			f.BytesPerJob = 1e6 * (f.Heap - all[0].Heap) / float64(number)
		}
		all = append(all, f)
	}
	return all, nil
}

// beside starts the system, and measures.
func (w *World) beside(ctx context.Context, number, burst int) (Finished, error) {
	f := Finished{Jobs: number}
	before, err := measure.ReadRequests(ctx, w.Fleet)
	if err != nil {
		return f, err
	}
	began := time.Now()
	if err := w.System.Start(ctx); err != nil {
		return f, err
	}
	f.Ready = time.Since(began).Seconds()
	names := w.names(1)
	if err := w.Load.Create(ctx, names[0]); err != nil {
		return f, err
	}
	if err := w.Jobs.Complete(ctx, names); err != nil {
		return f, err
	}
	f.First = w.Jobs.Of(names)[0].Runnable.Sub(began).Seconds()
	after, err := w.settle(ctx)
	if err != nil {
		return f, err
	}
	since := after.Minus(before)
	hub, workers := measure.Sum(since.Hub), measure.Sum(since.Workers)
	f.HubRequests, f.WorkerRequests = hub.Reads+hub.Writes, workers.Reads+workers.Writes
	if err := w.memory(ctx, &f); err != nil {
		return f, err
	}
	if err := w.WarmUp(ctx); err != nil {
		return f, err
	}
	if f.OneByOne, err = w.OneByOne(ctx, 10, 0); err != nil || burst == 0 {
		return f, err
	}
	run, err := w.Burst(ctx, burst)
	f.Burst = &run
	return f, err
}

func (w *World) memory(ctx context.Context, f *Finished) error {
	usage, err := w.usage()
	if err != nil {
		return err
	}
	heap, err := measure.Heap(ctx, w.System.Pprof())
	f.Heap, f.RSS, f.Peak, f.CPU = float64(heap)/1e6, float64(usage.RSS)/1e6, float64(usage.Peak)/1e6, usage.CPU
	return err
}

// Live is what jobs that run cost.
type Live struct {
	Jobs int `json:"liveJobs"`
	// BytesPerJob is what a job with a copy that runs adds to the heap.
	BytesPerJob float64 `json:"heapBytesPerLiveJob"`
	RSS         float64 `json:"rssMB"`
}

// LiveJobs measures the memory of so many jobs that run and do not end.
func (w *World) LiveJobs(ctx context.Context, number int) (Live, error) {
	live := Live{Jobs: number}
	before, err := measure.Heap(ctx, w.System.Pprof())
	if err != nil {
		return live, err
	}
	w.runFor.Store(-1)
	names := w.names(number)
	if err := w.Load.Burst(ctx, names); err != nil {
		return live, err
	}
	if err := w.Jobs.Runnable(ctx, names); err != nil {
		return live, err
	}
	if _, err := w.settle(ctx); err != nil {
		return live, err
	}
	after, err := measure.Heap(ctx, w.System.Pprof())
	if err != nil {
		return live, err
	}
	usage, err := w.usage()
	live.BytesPerJob, live.RSS = float64(after-before)/float64(number), float64(usage.RSS)/1e6
	return live, err
}

// Rate is a load that goes on.
type Rate struct {
	PerSecond float64 `json:"jobsPerSecond"`
	Seconds   float64 `json:"seconds"`
	// First and Last are the latencies of the first and the last tenth of the jobs: if queues grew, the last would wait
	// longer.
	First Latencies `json:"firstTenth"`
	Last  Latencies `json:"lastTenth"`
	// Cores that the system's process took on average.
	Cores float64 `json:"cores"`
	Run   Run     `json:"run"`
}

// Steadily measures a rate of jobs that run for some seconds each.
func (w *World) Steadily(ctx context.Context, perSecond float64, lasting, runFor time.Duration) (Rate, error) {
	number := int(perSecond * lasting.Seconds())
	var names []string
	run, err := w.run(ctx, number, runFor, func(all []string) error {
		names = all
		return w.Load.Steadily(ctx, all, perSecond)
	})
	if err != nil {
		return Rate{}, err
	}
	tenth := max(number/10, 1)
	return Rate{
		PerSecond: perSecond, Seconds: run.Seconds, Run: run, Cores: run.CPU / 1000 * float64(number) / run.Seconds,
		First: latencies(w.Jobs.Of(names[:tenth])), Last: latencies(w.Jobs.Of(names[number-tenth:])),
	}, nil
}

// finishedNames returns the names of finished jobs from one number to another.
func finishedNames(from, to int) []string { return load.Names("finished", to)[from:] }
