// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Simulation compares how Trainyard, MultiKueue and chance place jobs on GPU clusters, in virtual time:
//
//	go -C test/simulation run .                       a fleet of 40 workers at 85 % load, about a minute
//	go -C test/simulation run . --load 1.1 --seeds 5  more than the fleet can do
//	go -C test/simulation run . --trace $PWD/cluster_job_log --trace-format philly
//
// Trainyard's rows are decided by packages dispatch and dispatch/queue, as in the manager. docs/simulation.md says what
// is modelled and has results.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/test/simulation/internal/plot"
	"github.com/trainyard/trainyard/test/simulation/internal/report"
	"github.com/trainyard/trainyard/test/simulation/internal/scenario"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/trace"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
	"github.com/trainyard/trainyard/test/simulation/internal/yard"
)

// run compares, and writes everything that is asked for.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	s, err := scenario.Load(o.scenario)
	if err != nil {
		return err
	}
	o.override(s)
	workload, err := newWorkload(o, s, progress)
	if err != nil {
		return err
	}
	selected, err := selectSystems(o.systems)
	if err != nil {
		return err
	}
	workers, nodes, gpus := s.Size()
	fmt.Fprintf(out, "%d workers, %d nodes, %d GPUs; %s; measured from %v to %v; %s\n\n", workers, nodes, gpus,
		workload.title, workload.window.From.Round(time.Second), workload.window.To.Round(time.Second), seeds(o.seeds))
	runs, err := compare(ctx, o, s, workload, selected, progress)
	if err != nil {
		return err
	}
	totals := report.Combine(runs)
	if err := report.Table(out, totals); err != nil {
		return err
	}
	if o.details {
		if err := report.Details(out, totals); err != nil {
			return err
		}
	}
	if err := export(o.output, runs); err != nil {
		return err
	}
	if o.plots != "" {
		subtitle := fmt.Sprintf("%d workers, %d GPUs, %s, %s", workers, gpus, workload.title, seeds(o.seeds))
		return plot.Plots{Subtitle: subtitle, Totals: totals, Window: workload.window}.Write(o.plots)
	}
	return nil
}

// override changes the scenario by what the flags say.
func (o *options) override(s *scenario.Scenario) {
	if o.load > 0 {
		s.Load = o.load
	}
	if o.warmup > 0 {
		s.Warmup.Duration = o.warmup
	}
	if o.window > 0 {
		s.Window.Duration = o.window
	}
	if o.cooldown > 0 {
		s.Cooldown.Duration = o.cooldown
	}
}

// workload is the jobs for each seed.
type workload struct {
	title  string
	window world.Span
	jobs   func(seed uint64) ([]stream.Job, error)
}

func newWorkload(o options, s *scenario.Scenario, progress io.Writer) (*workload, error) {
	if o.trace != "" {
		return recorded(o, s, progress)
	}
	return &workload{
		title:  fmt.Sprintf("offered load %.0f %%", 100*s.Load),
		window: s.Measured(),
		jobs: func(seed uint64) ([]stream.Job, error) {
			return s.Jobs.Generate(seed, s.Pools(), s.Load, s.End())
		},
	}, nil
}

// recorded is the jobs of a trace that the fleet could run.
func recorded(o options, s *scenario.Scenario, progress io.Writer) (*workload, error) {
	found, err := trace.Read(o.traceFormat, o.trace, o.jobTable)
	if err != nil {
		return nil, err
	}
	jobs := found.Jobs
	all := len(jobs)
	anyProduct := s.Adapt(jobs)
	empty := world.New(s.Workers(), nil, world.Options{}).Workers()
	jobs = slices.DeleteFunc(jobs, func(job stream.Job) bool {
		return !slices.ContainsFunc(empty, func(w *world.Worker) bool { return w.Fits(&job) })
	})
	fmt.Fprintf(progress, "%s: %d jobs; left out: %s, and %d that fit on no worker of the fleet; %d want GPUs that the fleet does not have "+
		"and take any\n", o.trace, len(jobs), found.LeftOut(), all-len(jobs), anyProduct)
	if len(jobs) == 0 {
		return nil, fmt.Errorf("trace %s has no job that the fleet can run", o.trace)
	}
	stream.Sort(jobs)
	title := "recorded jobs"
	if o.load > 0 {
		_, _, gpus := s.Size()
		stream.Stretch(jobs, o.load, gpus)
		title = fmt.Sprintf("recorded jobs at an offered load of %.0f %%", 100*o.load)
	}
	end := jobs[len(jobs)-1].Submitted + 1
	window := world.Span{From: end / 10, To: end}
	if o.warmup > 0 {
		window.From = o.warmup
	}
	if o.window > 0 {
		window.To = window.From + o.window
	}
	return &workload{title: title, window: window, jobs: func(uint64) ([]stream.Job, error) { return jobs, nil }}, nil
}

// compare runs every system with every seed, some of them at the same time, and returns the summaries in order.
func compare(ctx context.Context, o options, s *scenario.Scenario, load *workload, selected []system, progress io.Writer,
) ([]report.Summary, error) {
	runs := make([]report.Summary, len(selected)*o.seeds)
	places := make(chan struct{}, o.parallel)
	var group sync.WaitGroup
	var mu sync.Mutex // Of progress.
	for seed := range o.seeds {
		jobs, err := load.jobs(o.seed + uint64(seed))
		if err != nil {
			return nil, err
		}
		for i := range selected {
			select {
			case <-ctx.Done():
				group.Wait()
				return nil, ctx.Err()
			case places <- struct{}{}:
			}
			group.Go(func() {
				defer func() { <-places }()
				begun := time.Now()
				summary := simulate(o, s, load, selected[i], jobs, o.seed+uint64(seed))
				runs[i*o.seeds+seed] = summary
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(progress, "%s, seed %d: %d jobs in %.1fs\n", summary.System, summary.Seed, len(jobs), time.Since(begun).Seconds())
			})
		}
	}
	group.Wait()
	return runs, nil
}

func simulate(o options, s *scenario.Scenario, load *workload, which system, jobs []stream.Job, seed uint64) report.Summary {
	w := world.New(s.Workers(), jobs, world.Options{Window: load.window, Spread: o.spread, Grace: o.grace, Checkpoint: o.checkpoint})
	system := which.make(w, seed, &o)
	w.Run(system)
	run := report.Run{System: which.title, Seed: seed, Window: load.window, Result: w.Result()}
	if ours, is := system.(*yard.System); is {
		run.Effort = ours.Effort()
	}
	return report.Summarize(run)
}

// export writes the runs to a file.
func export(name string, runs []report.Summary) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	write := report.JSON
	if filepath.Ext(name) == ".csv" {
		write = report.CSV
	}
	if err := write(file, runs); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

func seeds(n int) string {
	if n == 1 {
		return "1 seed"
	}
	return fmt.Sprintf("%d seeds", n)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second Ctrl-C ends at once.
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "simulation:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	command := &cobra.Command{
		Use:   "simulation",
		Short: "Compare how Trainyard, MultiKueue and chance place jobs on GPU clusters, in virtual time",
		Long: `simulation lets several systems dispatch the same jobs to the same imagined workers, and reports utilisation, waits by size of
the jobs, fragmentation, preemptions, and how fast Trainyard decided.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return run(command.Context(), o, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	o.addFlags(command.Flags())
	return command
}
