// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"

	"github.com/trainyard/trainyard/test/simulation/internal/scenario"
	"github.com/trainyard/trainyard/test/simulation/internal/trace"
)

// options of a comparison. The options from defaultOptions are valid.
type options struct {
	scenario     string
	systems      []string
	load         float64
	seed         uint64
	seeds        int
	warmup       time.Duration
	window       time.Duration
	cooldown     time.Duration
	trace        string
	traceFormat  string
	jobTable     string
	spread       bool
	grace        time.Duration
	checkpoint   time.Duration
	kueueRate    float64
	reserveAfter time.Duration
	parallel     int
	details      bool
	output       string
	plots        string
}

func defaultOptions() options {
	return options{
		scenario:     "mixed",
		systems:      []string{"all"},
		seed:         1,
		seeds:        3,
		grace:        30 * time.Second,
		checkpoint:   30 * time.Minute,
		reserveAfter: 2 * time.Hour,
		parallel:     runtime.GOMAXPROCS(0),
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.scenario, "scenario", o.scenario,
		"YAML file that describes fleet, jobs and times, or one that is built in: "+strings.Join(scenario.Names(), ", ")+".")
	fs.StringSliceVar(&o.systems, "systems", o.systems,
		"What is compared: \"all\", or some of "+strings.Join(systemNames(), ", ")+".")
	fs.Float64Var(&o.load, "load", o.load, "Offered load, 0.85 for 85 %; 0 for the scenario's, or for a trace as fast as it was recorded.")
	fs.Uint64Var(&o.seed, "seed", o.seed, "First seed of the random numbers. The same seed gives the same jobs and results.")
	fs.IntVar(&o.seeds, "seeds", o.seeds, "How many seeds, one after the other. A trace is the same jobs with all of them.")
	fs.DurationVar(&o.warmup, "warmup", o.warmup, "Time before the measured window; 0 for the scenario's, or a tenth of a trace.")
	fs.DurationVar(&o.window, "window", o.window, "Measured time; 0 for the scenario's, or the rest of a trace.")
	fs.DurationVar(&o.cooldown, "cooldown", o.cooldown, "Time after the window in which jobs go on arriving; 0 for the scenario's.")
	fs.StringVar(&o.trace, "trace", o.trace, "File with recorded jobs, instead of the scenario's. Its fleet is used.")
	fs.StringVar(&o.traceFormat, "trace-format", o.traceFormat, "Format of the trace: "+strings.Join(trace.Formats(), ", ")+".")
	fs.StringVar(&o.jobTable, "trace-job-table", o.jobTable,
		"For a trace of format pai the pai_job_table, which says when jobs were submitted. Without it they are when their first task began.")
	fs.BoolVar(&o.spread, "spread-pods", o.spread,
		"Schedulers of workers bind pods to the nodes with the most free, kube-scheduler's default, instead of those with the least.")
	fs.DurationVar(&o.grace, "grace", o.grace, "How long pods take to end that are stopped.")
	fs.DurationVar(&o.checkpoint, "checkpoint", o.checkpoint, "How often jobs save what they have done; 0 for never.")
	fs.Float64Var(&o.kueueRate, "multikueue-rate", o.kueueRate,
		"Jobs a second that MultiKueue dispatches; 0 for any number. 1.3 is what it does with its default limits.")
	fs.DurationVar(&o.reserveAfter, "reserve-after", o.reserveAfter, "spec.reserveAfter of Trainyard's DispatchPolicy.")
	fs.IntVar(&o.parallel, "parallel", o.parallel, "How many simulations run at the same time.")
	fs.BoolVar(&o.details, "details", o.details, "Print all percentiles of the waits by size and priority, too.")
	fs.StringVarP(&o.output, "output", "o", o.output, "File for the numbers of every run, by its name .json or .csv.")
	fs.StringVar(&o.plots, "plots", o.plots, "Folder for plots as SVG.")
}

// validate returns all faults at once.
func (o *options) validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }
	if _, err := selectSystems(o.systems); err != nil {
		faults = multierror.Append(faults, err)
	}
	for _, number := range []struct {
		flag  string
		value float64
	}{
		{"load", o.load}, {"multikueue-rate", o.kueueRate}, {"warmup", o.warmup.Seconds()}, {"window", o.window.Seconds()},
		{"cooldown", o.cooldown.Seconds()}, {"grace", o.grace.Seconds()}, {"checkpoint", o.checkpoint.Seconds()},
		{"reserve-after", o.reserveAfter.Seconds()},
	} {
		if number.value < 0 {
			fault("--%s is negative", number.flag)
		}
	}
	if o.seeds < 1 || o.parallel < 1 {
		fault("--seeds and --parallel are at least 1")
	}
	switch {
	case o.trace == "" && (o.traceFormat != "" || o.jobTable != ""):
		fault("--trace-format and --trace-job-table are for a --trace")
	case o.trace != "" && !slices.Contains(trace.Formats(), o.traceFormat):
		fault("--trace-format is %q, but one of %s is needed with --trace", o.traceFormat, strings.Join(trace.Formats(), ", "))
	case o.jobTable != "" && o.traceFormat != trace.PAI:
		fault("--trace-job-table is for --trace-format %s", trace.PAI)
	}
	if extension := filepath.Ext(o.output); o.output != "" && extension != ".json" && extension != ".csv" {
		fault("--output is %q, but its name ends in .json or .csv", o.output)
	}
	return faults.ErrorOrNil()
}
