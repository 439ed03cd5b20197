// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Bench measures dispatchers on clusters that it starts on this machine: see docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/report"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/yard"
)

// all measures each system on each fleet, one after the other, and writes the results after each.
func (o *options) all(ctx context.Context) error {
	r, err := o.newReport()
	if err != nil {
		return err
	}
	var errs []error
	if slices.Contains(o.scenarios, many) {
		progress("trainyard, %d fake workers", o.manyWorkers)
		if r.Many, err = o.many(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%d fake workers: %w", o.manyWorkers, err))
		}
	}
	if slices.Contains(o.scenarios, expiry) {
		progress("trainyard, jobs that expire after %s, for %s", o.ttl, o.lasting)
		if err := o.expiry(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("jobs that expire: %w", err))
		}
	}
	if slices.Contains(o.scenarios, unequal) {
		r.Unequal = nil
		for _, dispatcher := range []string{scenario.AllAtOnce, scenario.Incremental, scenario.GangFit} {
			progress("%s, unequal workers", dispatcher)
			if err := o.unequal(ctx, r, dispatcher); err != nil {
				errs = append(errs, fmt.Errorf("%s on unequal workers: %w", dispatcher, err))
			}
		}
	}
	for i, workers := range o.workers {
		for j, rtt := range o.rtts {
			for _, system := range o.systems {
				result := o.newResult(system, workers, rtt)
				progress("%s, %d workers, %s", system, workers, rtt)
				if err := o.one(ctx, result, rtt, yard.Version{}, i == 0 && j == 0); err != nil {
					result.Error = err.Error()
					errs = append(errs, fmt.Errorf("%s, %d workers, %s: %w", system, workers, rtt, err))
				}
				r.Add(result)
				if o.out != "" {
					errs = append(errs, r.Write(o.out))
				}
				if ctx.Err() != nil {
					return errors.Join(errs...)
				}
			}
		}
	}
	fmt.Println(r.Text())
	if o.smoke && o.agents == 0 && errors.Join(errs...) == nil {
		return report.Exceeded(r.Results[len(r.Results)-1].Burst)
	}
	return errors.Join(errs...)
}

func (o *options) newReport() (*report.Report, error) {
	r := report.New(time.Now())
	if o.out == "" {
		return r, nil
	}
	earlier, err := report.Read(o.out)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.Results, r.Many, r.Unequal, r.Expiry = earlier.Results, earlier.Many, earlier.Unequal, earlier.Expiry
	return r, nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// many measures Trainyard with many fake workers.
func (o *options) many(ctx context.Context) (*scenario.Many, error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	result, err := scenario.ManyWorkers(ctx, o.manyWorkers, o.jobs)
	return &result, err
}

// expiry measures jobs that are archived and deleted. What has been measured is written on the way: it takes long.
func (o *options) expiry(ctx context.Context, r *report.Report) error {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	stream := scenario.Stream{PerSecond: o.perSecond, Lasting: o.lasting, TTL: o.ttl}
	return scenario.ExpiringJobs(ctx, stream, func(e *scenario.Expiry) error {
		if n := len(e.Levels); n > 0 {
			progress("%s", report.LevelText(&e.Levels[n-1]))
		}
		if r.Expiry = e; o.out != "" {
			return r.Write(o.out)
		}
		return nil
	})
}

// unequal measures one dispatcher of MultiKueue on unequal workers.
func (o *options) unequal(ctx context.Context, r *report.Report, dispatcher string) error {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	result, err := scenario.UnequalWorkers(ctx, dispatcher, o.unequalJobs)
	if err != nil {
		return err
	}
	if r.Unequal = append(r.Unequal, result); o.out != "" {
		return r.Write(o.out)
	}
	return nil
}

// newResult returns the result of a system that is to be measured.
func (o *options) newResult(system string, workers int, rtt time.Duration) *report.Result {
	result := &report.Result{
		System: system, Workers: workers, RTT: float64(rtt.Microseconds()) / 1000, GarbageCollector: o.garbageCollector, Agents: o.agents,
	}
	if system == report.Trainyard && o.replicas > 1 {
		result.Replicas = o.replicas
	}
	return result
}

// one measures one system on a fleet of its own, with CRDs and programs of a version of Trainyard.
func (o *options) one(ctx context.Context, result *report.Result, rtt time.Duration, version yard.Version, everything bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	f, err := fleet.Start(ctx, fleet.Options{
		Workers: result.Workers, RTT: rtt, GarbageCollector: result.GarbageCollector, Agents: result.Agents, Version: version,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	system, err := systemOf(result, f, version)
	if err != nil {
		return err
	}
	w, err := scenario.NewWorld(ctx, f, system)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.WarmUp(ctx); err != nil {
		return err
	}
	if o.profile != "" && w.System != nil {
		done := make(chan error, 1)
		go func() { done <- measure.Profile(ctx, w.System.Pprof(), o.profile+"."+result.System, o.profileSeconds) }()
		defer func() { err = errors.Join(<-done, err) }()
	}
	return o.scenariosOf(ctx, w, result, everything)
}

// systemOf returns nil for the floor.
func systemOf(result *report.Result, f *fleet.Fleet, version yard.Version) (scenario.System, error) {
	switch result.System {
	case report.Trainyard:
		return trainyard.On(f, trainyard.Options{Replicas: result.Replicas, Version: version})
	case report.MultiKueue:
		return kueue.New(f, kueue.Defaults()), nil
	case report.Tuned:
		return kueue.New(f, kueue.Tuned()), nil
	default:
		return nil, nil //nolint:nilnil // The floor is no System.
	}
}

// scenariosOf runs the requested scenarios in a world. Live jobs come last: they stay.
func (o *options) scenariosOf(ctx context.Context, w *scenario.World, result *report.Result, everything bool) error {
	asked := func(name string) bool { return slices.Contains(o.scenarios, name) }
	if asked(burst) {
		run, err := w.Burst(ctx, o.jobsOf(result.System))
		if err != nil {
			return fmt.Errorf("burst: %w", err)
		}
		result.Burst = &run
	}
	if asked(idle) {
		run, err := w.OneByOne(ctx, o.idleJobs, o.idleRunFor)
		if err != nil {
			return fmt.Errorf("idle: %w", err)
		}
		result.Idle = &run
	}
	if !everything || w.System == nil {
		return nil
	}
	if asked(rate) && result.System == report.Trainyard {
		run, err := w.Steadily(ctx, o.perSecond, o.lasting, 5*time.Second)
		if err != nil {
			return fmt.Errorf("rate: %w", err)
		}
		result.Rate = &run
	}
	if asked(finished) {
		all, err := w.FinishedJobs(ctx, o.finishedJobs, o.jobsOf(result.System))
		result.Finished = all
		if err != nil {
			return fmt.Errorf("finished: %w", err)
		}
	}
	if asked(live) {
		run, err := w.LiveJobs(ctx, o.liveOf(result.System))
		if err != nil {
			return fmt.Errorf("live: %w", err)
		}
		result.Live = &run
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do.
	}
}

func bench(ctx context.Context, args []string) error {
	o := defaultOptions()
	fs := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	o.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := o.complete(); err != nil {
		return err
	}
	if o.baseline != "" {
		if fs.Changed("systems") {
			return fmt.Errorf("--baseline compares Trainyard with Trainyard: leave out --systems")
		}
		return o.compare(ctx)
	}
	return o.all(ctx)
}
