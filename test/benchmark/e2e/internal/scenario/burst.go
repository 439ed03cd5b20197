// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
)

// Percentiles of a time in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func percentiles(of []time.Duration) Percentiles {
	if len(of) == 0 {
		return Percentiles{}
	}
	slices.Sort(of)
	at := func(percent int) float64 {
		return float64(of[min(len(of)-1, len(of)*percent/100)].Microseconds()) / 1000
	}
	return Percentiles{P50: at(50), P95: at(95), P99: at(99)}
}

// Latencies of jobs.
type Latencies struct {
	// Start is from the request to create a job until its copy may run, End from when the copy is Complete until the job
	// is.
	Start Percentiles `json:"createToRunnableMs"`
	End   Percentiles `json:"workerCompleteToHubCompleteMs"`
	// Write is how long the hub took to create a job.
	Write Percentiles `json:"hubWriteMs"`
}

func latencies(jobs []measure.Job) Latencies {
	var start, end, write []time.Duration
	for i := range jobs {
		start = append(start, jobs[i].Runnable.Sub(jobs[i].Created))
		end = append(end, jobs[i].HubComplete.Sub(jobs[i].WorkerComplete))
		write = append(write, jobs[i].Accepted.Sub(jobs[i].Created))
	}
	return Latencies{Start: percentiles(start), End: percentiles(end), Write: percentiles(write)}
}

// PerJob are requests per job.
type PerJob struct {
	HubReads     float64 `json:"hubReads"`
	HubWrites    float64 `json:"hubWrites"`
	WorkerReads  float64 `json:"workerReads"`
	WorkerWrites float64 `json:"workerWrites"`
	// Hub and Workers are the same by kind of request.
	Hub     map[string]float64 `json:"hub"`
	Workers map[string]float64 `json:"workers"`
}

func perJob(r measure.Requests, jobs int) PerJob {
	n := float64(jobs)
	hub, workers := measure.Sum(r.Hub), measure.Sum(r.Workers)
	return PerJob{
		HubReads: float64(hub.Reads) / n, HubWrites: float64(hub.Writes) / n,
		WorkerReads: float64(workers.Reads) / n, WorkerWrites: float64(workers.Writes) / n,
		Hub: byKind(r.Hub, n), Workers: byKind(r.Workers, n),
	}
}

func byKind(counts api.Counts, jobs float64) map[string]float64 {
	kinds := map[string]float64{}
	for request, count := range counts {
		kinds[request.String()] += float64(count) / jobs
	}
	return kinds
}

// Run is what a number of jobs took.
type Run struct {
	Jobs int `json:"jobs"`
	// Seconds from the first request to create a job until the last is Complete on the hub.
	Seconds       float64 `json:"seconds"`
	JobsPerSecond float64 `json:"jobsPerSecond"`
	Latencies     `json:"latencies"`
	Requests      PerJob `json:"requestsPerJob"`
	// Collected is the share of the copies that were gone before the last job was Complete.
	Collected float64 `json:"collectedMeanwhile"`
	// CPU is what the system's process took per job, in milliseconds, and Peak its largest memory in MB.
	CPU  float64 `json:"cpuMsPerJob"`
	Peak float64 `json:"peakMB"`
	// CPUByRole is what the processes of each role took per job, in milliseconds, from the first request to create a job
	// until the system had done all work that the jobs cause. That took so many Seconds.
	CPUByRole  measure.CPU `json:"cpuMsPerJobByRole"`
	CPUSeconds float64     `json:"cpuMeasuredForSeconds"`
}

// Burst creates jobs as fast as the hub takes them, each of which ends as soon as it may run.
func (w *World) Burst(ctx context.Context, jobs int) (Run, error) {
	return w.run(ctx, jobs, 0, func(names []string) error { return w.Load.Burst(ctx, names) })
}

// OneByOne creates each job when the one before it is Complete. Each runs for so long.
func (w *World) OneByOne(ctx context.Context, jobs int, runFor time.Duration) (Run, error) {
	return w.run(ctx, jobs, runFor, func(names []string) error {
		for _, name := range names {
			if err := w.Load.Create(ctx, name); err != nil {
				return err
			}
			if err := w.Jobs.Complete(ctx, []string{name}); err != nil {
				return err
			}
		}
		return nil
	})
}

// run measures jobs, and waits until the system has done all work that the jobs cause.
func (w *World) run(ctx context.Context, jobs int, runFor time.Duration, create func(names []string) error) (Run, error) {
	w.runFor.Store(int64(runFor))
	names := w.names(jobs)
	if w.System != nil {
		if err := measure.ResetPeak(w.System.PID()); err != nil {
			return Run{}, err
		}
	}
	before, err := measure.ReadRequests(ctx, w.Fleet)
	if err != nil {
		return Run{}, err
	}
	used, err := w.usage()
	if err != nil {
		return Run{}, err
	}
	began := time.Now()
	usedByRole, err := measure.ReadCPU(w.Fleet)
	if err != nil {
		return Run{}, err
	}
	if err := create(names); err != nil {
		return Run{}, err
	}
	if err := w.Jobs.Complete(ctx, names); err != nil {
		return Run{}, err
	}
	after, err := w.settle(ctx)
	if err != nil {
		return Run{}, err
	}
	byRole, err := measure.ReadCPU(w.Fleet)
	if err != nil {
		return Run{}, err
	}
	if byRole, err = byRole.Minus(usedByRole); err != nil {
		return Run{}, err
	}
	usage, err := w.usage()
	if err != nil {
		return Run{}, err
	}
	all := w.Jobs.Of(names)
	r := Run{Jobs: jobs, Seconds: span(all).Seconds(), Latencies: latencies(all), Requests: perJob(after.Minus(before), jobs)}
	r.JobsPerSecond = float64(jobs) / r.Seconds
	first, last := ends(all)
	r.Collected = float64(w.Jobs.Gone(first, last)) / float64(jobs)
	r.CPU, r.Peak = 1000*(usage.CPU-used.CPU)/float64(jobs), float64(usage.Peak)/1e6
	r.CPUByRole, r.CPUSeconds = byRole.PerJob(jobs), time.Since(began).Seconds()
	return r, nil
}

// span is from the first creation to the last end.
func span(jobs []measure.Job) time.Duration {
	first, last := ends(jobs)
	return last.Sub(first)
}

func ends(jobs []measure.Job) (first, last time.Time) {
	first, last = jobs[0].Created, jobs[0].HubComplete
	for i := range jobs {
		if jobs[i].Created.Before(first) {
			first = jobs[i].Created
		}
		if jobs[i].HubComplete.After(last) {
			last = jobs[i].HubComplete
		}
	}
	return first, last
}
