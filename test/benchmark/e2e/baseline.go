// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/report"
	"github.com/trainyard/trainyard/test/yard"
)

// side is one of the two versions of Trainyard that are compared.
type side struct {
	version yard.Version
	// name is the commit from which the programs were built.
	name string
}

// compare measures the present tree and a baseline in turn, on each fleet. It prints what it has compared before an
// error, too.
func (o *options) compare(ctx context.Context) error {
	present, baseline, err := o.sides(ctx)
	if err != nil {
		return err
	}
	r := report.New(time.Now())
	defer func() { fmt.Println(r.Text()) }()
	for i, workers := range o.workers {
		for j, rtt := range o.rtts {
			c := &report.Comparison{Present: present.name, Baseline: baseline.name}
			r.Comparisons = append(r.Comparisons, c)
			for n := range o.pairs {
				pair, err := o.pair(ctx, n, present, baseline, fleetOf{workers, rtt, i == 0 && j == 0})
				if err != nil {
					return err
				}
				c.Pairs = append(c.Pairs, pair)
				if o.out != "" {
					if err := r.Write(filepath.Join(o.out, "baseline")); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// fleetOf says on which fleet a pair is measured.
type fleetOf struct {
	workers int
	rtt     time.Duration
	first   bool
}

// pair measures both sides, each on a fleet of its own. In every second pair the baseline is first.
func (o *options) pair(ctx context.Context, n int, present, baseline side, on fleetOf) (report.Pair, error) {
	pair := report.Pair{
		Present:  o.newResult(report.Trainyard, on.workers, on.rtt),
		Baseline: o.newResult(report.Trainyard, on.workers, on.rtt),
	}
	steps := []struct {
		what string
		side
		result *report.Result
	}{{"present tree", present, pair.Present}, {"baseline", baseline, pair.Baseline}}
	if !presentFirst(n) {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		what := fmt.Sprintf("pair %d of %d, %s (%s), %d workers, %s", n+1, o.pairs, step.what, step.name, on.workers, on.rtt)
		progress("%s", what)
		if err := o.one(ctx, step.result, on.rtt, step.version, on.first); err != nil {
			return pair, fmt.Errorf("%s: %w", what, err)
		}
	}
	return pair, nil
}

// presentFirst alternates, so that what changes on the machine over time concerns both sides alike.
func presentFirst(pair int) bool { return pair%2 == 0 }

// sides builds the baseline, and finds the programs of the present tree.
func (o *options) sides(ctx context.Context) (present, baseline side, err error) {
	if present.version, err = (yard.Version{}).Complete(ctx); err != nil {
		return present, baseline, err
	}
	present.version.Programs = cmp.Or(os.Getenv("TRAINYARD_BIN"), filepath.Join(present.version.Root, "bin"))
	if present.name, err = stdout(exec.CommandContext(ctx, "git", "-C", present.version.Root,
		"describe", "--always", "--exclude=*", "--abbrev=12", "--dirty= with changes")); err != nil {
		return present, baseline, fmt.Errorf("name the present tree: %w", err)
	}
	built, err := stdout(exec.CommandContext(ctx, filepath.Join(present.version.Root, "hack/build-commit.sh"), o.baseline, "--baseline"))
	if err != nil {
		return present, baseline, fmt.Errorf("build the baseline %q: %w", o.baseline, err)
	}
	baseline.version = yard.Version{Root: filepath.Join(built, "source"), Programs: filepath.Join(built, "programs")}
	baseline.name = filepath.Base(built)[:12]
	return present, baseline, nil
}

// stdout runs a command, shows its standard error, and returns the line that it prints.
func stdout(command *exec.Cmd) (string, error) {
	command.Stderr = os.Stderr
	out, err := command.Output()
	return strings.TrimSpace(string(out)), err
}
