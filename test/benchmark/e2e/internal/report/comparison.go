// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
)

// Comparison is the present tree against a baseline, on fleets that are alike.
type Comparison struct {
	// Present and Baseline are the commits from which the programs were built.
	Present  string `json:"present"`
	Baseline string `json:"baseline"`
	Pairs    []Pair `json:"pairs"`
}

// Pair is what both did, one after the other.
type Pair struct {
	Present  *Result `json:"present"`
	Baseline *Result `json:"baseline"`
}

// reading is one number of a result.
type reading struct {
	what, unit string
	value      float64
}

// section has the readings of a scenario.
type section struct {
	scenario string
	readings []reading
}

// sections are the readings of all scenarios.
func (r *Result) sections() []section {
	var all []section
	for _, run := range r.runs() {
		all = append(all, section{run.scenario, readingsOf(run.Run)})
	}
	for i := range r.Finished {
		f := &r.Finished[i]
		readings := []reading{
			{"heap", "MB", f.Heap}, {"peak memory of the start", "MB", f.Peak}, {"start until ready", "s", f.Ready},
			{"start until the first job may run", "s", f.First}, {"CPU time of the start", "s", f.CPU},
			{"one at a time, create → may run p50", "ms", f.OneByOne.Start.P50},
		}
		if f.Burst != nil {
			readings = append(readings, reading{"burst", "jobs/s", f.Burst.JobsPerSecond})
		}
		all = append(all, section{fmt.Sprintf("beside %d finished jobs", f.Jobs), readings})
	}
	if r.Live != nil {
		all = append(all, section{"live jobs", []reading{
			{"heap per job", "KB", r.Live.BytesPerJob / 1000}, {"memory of the manager", "MB", r.Live.RSS},
		}})
	}
	return all
}

func readingsOf(run *scenario.Run) []reading {
	q := &run.Requests
	all := []reading{
		{"jobs per second (more is better)", "jobs/s", run.JobsPerSecond},
		{"create → may run p50", "ms", run.Start.P50}, {"create → may run p95", "ms", run.Start.P95}, {"create → may run p99", "ms", run.Start.P99},
		{"copy's end → hub p50", "ms", run.End.P50}, {"copy's end → hub p95", "ms", run.End.P95}, {"copy's end → hub p99", "ms", run.End.P99},
		{"requests per job, hub reads", "", q.HubReads}, {"requests per job, hub writes", "", q.HubWrites},
		{"requests per job, workers' reads", "", q.WorkerReads}, {"requests per job, workers' writes", "", q.WorkerWrites},
		{"requests per job, all", "", q.HubReads + q.HubWrites + q.WorkerReads + q.WorkerWrites},
	}
	for _, role := range slices.Sorted(maps.Keys(run.CPUByRole)) {
		all = append(all, reading{"CPU per job, " + role, "ms", run.CPUByRole[role]})
	}
	return append(all, reading{"CPU per job, all", "ms", run.CPUByRole.Sum()}, reading{"peak memory of the manager", "MB", run.Peak})
}

// find returns a reading, and whether there is one.
func (r *Result) find(scenario, what string) (float64, bool) {
	for _, s := range r.sections() {
		if s.scenario != scenario {
			continue
		}
		for _, reading := range s.readings {
			if reading.what == what {
				return reading.value, true
			}
		}
	}
	return 0, false
}

// contrast compares the values of one reading.
type contrast struct {
	// present and baseline are medians. ratio is present / baseline.
	present, baseline, ratio float64
	// least and most are the smallest and the largest ratio of a pair. A ratio to 0 is NaN.
	least, most float64
}

// contrastOf compares the values of pairs: the values at one index belong together. There is at least one pair.
func contrastOf(present, baseline []float64) contrast {
	c := contrast{present: median(present), baseline: median(baseline), least: math.NaN(), most: math.NaN()}
	c.ratio = ratio(c.present, c.baseline)
	for i := range present {
		of := ratio(present[i], baseline[i])
		if math.IsNaN(of) {
			continue
		}
		if math.IsNaN(c.least) {
			c.least, c.most = of, of
		}
		c.least, c.most = min(c.least, of), max(c.most, of)
	}
	return c
}

func ratio(present, baseline float64) float64 {
	if baseline == 0 {
		return math.NaN()
	}
	return present / baseline
}

// median is the mean of the two values in the middle if their number is even.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// Text is the comparison for people, in Markdown.
func (c *Comparison) Text() string {
	if len(c.Pairs) == 0 {
		return fmt.Sprintf("No pair was measured of the present tree (%s) and the baseline (%s).\n", c.Present, c.Baseline)
	}
	var text strings.Builder
	first := c.Pairs[0].Present
	fmt.Fprintf(&text, `### Present tree against baseline: %s, %d workers, RTT %g ms

The present tree is bin/manager and bin/worker-agent, built from %s. The baseline is built from %s.
Pairs of runs: %d. Each run has fresh clusters. The two columns are medians of %[6]d runs. "ratio" is the ratio of the two
medians, present / baseline. "pairs" are the smallest and the largest ratio of one pair: a difference that is smaller
than this range may be chance.
`, first.name(), first.Workers, first.RTT, c.Present, c.Baseline, len(c.Pairs))
	for _, s := range first.sections() {
		t := newTable(s.scenario, "baseline", "present", "ratio", "pairs")
		for _, reading := range s.readings {
			t.row(c.row(s.scenario, reading)...)
		}
		fmt.Fprintf(&text, "\n%s", t)
	}
	return text.String()
}

// row compares a reading in all pairs in which both have it.
func (c *Comparison) row(scenario string, of reading) []string {
	var present, baseline []float64
	for _, pair := range c.Pairs {
		ours, has := pair.Present.find(scenario, of.what)
		theirs, had := pair.Baseline.find(scenario, of.what)
		if has && had {
			present, baseline = append(present, ours), append(baseline, theirs)
		}
	}
	if len(present) == 0 {
		return []string{of.what, "-", "-", "-", "-"}
	}
	d := contrastOf(present, baseline)
	spread := "-"
	if !math.IsNaN(d.least) {
		spread = fmt.Sprintf("%.2f to %.2f", d.least, d.most)
	}
	ratio := "-"
	if !math.IsNaN(d.ratio) {
		ratio = fmt.Sprintf("%.2f", d.ratio)
	}
	return []string{of.what, amount(d.baseline, of.unit), amount(d.present, of.unit), ratio, spread}
}

// amount has three digits at least.
func amount(value float64, unit string) string {
	digits := 0
	switch {
	case math.Abs(value) < 10:
		digits = 2
	case math.Abs(value) < 100:
		digits = 1
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s", digits, value, unit))
}
