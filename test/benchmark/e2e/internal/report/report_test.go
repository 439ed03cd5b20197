// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
	"github.com/trainyard/trainyard/test/check"
)

// run is a run that keeps to the budget.
func run(perSecond float64) *scenario.Run {
	return &scenario.Run{
		Jobs: 300, JobsPerSecond: perSecond, Latencies: scenario.Latencies{
			Start: scenario.Percentiles{P50: 10}, End: scenario.Percentiles{P50: 5}, Write: scenario.Percentiles{P50: 4},
		},
		Requests: scenario.PerJob{HubWrites: 4, WorkerWrites: 2, Hub: map[string]float64{"POST dispatches": 1, "POST events": 1}},
	}
}

func met(targets []target) map[string]bool {
	all := map[string]bool{}
	for _, t := range targets {
		all[t.what] = t.met()
	}
	return all
}

// TestTargets: a ratio compares measurements on the same fleet. What was not measured is no target.
func TestTargets(t *testing.T) {
	r := &Report{Results: []*Result{
		{System: Floor, Workers: 2, Burst: run(100)},
		{System: Trainyard, Workers: 2, Burst: run(59)},
		{System: Tuned, Workers: 2, Burst: run(5)},
		{System: MultiKueue, Workers: 2, Burst: run(0.9), Error: "it has ended"},
		{System: Tuned, Workers: 10, RTT: 100, Burst: run(1)},
		{System: Trainyard, Workers: 10, RTT: 100, Burst: run(50)},
		{System: Trainyard, Workers: 10, Burst: run(60)},
	}}
	got := met(append(r.throughputTargets(), r.distanceTargets()...))
	want := map[string]bool{
		"1. jobs/s, 2 workers, 0 ms, of multikueue-tuned's":    true,
		"1. jobs/s, 2 workers, 0 ms, of floor's":               false,
		"2. jobs/s, 10 workers, 100 ms, of multikueue-tuned's": true,
		"2. jobs/s, 10 workers, 100 ms, of ours at 0 ms":       true,
	}
	check.Diff(t, want, got, "targets that are met")
}

func TestExceeded(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*scenario.PerJob)
		want   string
	}{
		"Kept":       {reason: "All is as promised.", change: func(*scenario.PerJob) {}},
		"Read":       {reason: "One read in a hundred jobs is one too many.", change: func(q *scenario.PerJob) { q.WorkerReads = 0.01 }, want: "workers: reads"},
		"SecondCopy": {reason: "A copy is created and deleted.", change: func(q *scenario.PerJob) { q.WorkerWrites = 2.1 }, want: "workers: writes"},
		"HubWrite":   {reason: "Events do not count, all else does.", change: func(q *scenario.PerJob) { q.HubWrites = 6.1 }, want: "hub: writes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := run(1)
			tc.change(&r.Requests)
			err := Exceeded(r)
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestCPUTable: a column is a role that any system has, and what an earlier benchmark has measured has no row.
func TestCPUTable(t *testing.T) {
	ours, floor := run(1), run(1)
	ours.CPUByRole, ours.CPUSeconds = measure.CPU{"hub: manager": 8, "hub: etcd": 2}, 30
	floor.CPUByRole, floor.CPUSeconds = measure.CPU{"hub: etcd": 1}, 3
	r := &Report{Results: []*Result{
		{System: Trainyard, Workers: 2, Burst: ours}, {System: Floor, Workers: 2, Idle: floor}, {System: Tuned, Workers: 2, Burst: run(1)},
	}}
	want := `| system | workers | RTT | jobs | hub: etcd | hub: manager | all | all, in cores |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| trainyard | 2 | 0 ms | burst | 2.0 | 8.0 | 10.0 | 0.10 |
| floor | 2 | 0 ms | one at a time | 1.0 | - | 1.0 | 0.10 |
`
	check.Diff(t, want, r.cpuTable(), "table")
}

// TestAdd: what is measured again replaces what was, and the rest stays.
func TestAdd(t *testing.T) {
	r := &Report{}
	r.Add(&Result{System: Trainyard, Workers: 2, Burst: run(1), Idle: run(2)})
	r.Add(&Result{System: Trainyard, Workers: 2, Burst: run(3)})
	r.Add(&Result{System: Trainyard, Workers: 3, Burst: run(4)})
	r.Add(&Result{System: Trainyard, Workers: 3, Replicas: 2, Burst: run(5)})
	want := []*Result{
		{System: Trainyard, Workers: 2, Burst: run(3), Idle: run(2)}, {System: Trainyard, Workers: 3, Burst: run(4)},
		{System: Trainyard, Workers: 3, Replicas: 2, Burst: run(5)},
	}
	check.Diff(t, want, r.Results, "results")
}

// TestWritten: what is written can be read again, and drawings are XML without numbers that are none.
func TestWritten(t *testing.T) {
	r := New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r.Add(&Result{System: Trainyard, Workers: 2, Burst: run(1), Idle: run(0), Live: &scenario.Live{Jobs: 5}, Rate: &scenario.Rate{}})
	r.Add(&Result{System: Floor, Workers: 2, Burst: run(200), Idle: run(3), Finished: []scenario.Finished{{}, {Jobs: 7}}})
	folder := t.TempDir()
	check.Must(t, r.Write(folder))
	again, err := Read(folder)
	check.Must(t, err)
	check.Diff(t, r, again, "what was read")
	for _, c := range r.charts() {
		d := xml.NewDecoder(strings.NewReader(c.svg()))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s is no XML: %v", c.file, err)
		}
		err = nil
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			if strings.Contains(c.svg(), bad) {
				t.Errorf("%s has %s in it", c.file, bad)
			}
		}
	}
	if text := r.Text(); strings.Contains(text, "%!") || !strings.Contains(text, "A burst of jobs") {
		t.Errorf("text:\n%s", text)
	}
}

func TestContrast(t *testing.T) {
	none := math.NaN()
	cases := map[string]struct {
		reason            string
		present, baseline []float64
		want              contrast
	}{
		"Odd": {
			reason:  "The ratio is the medians', not the median of the ratios. The spread is the pairs'.",
			present: []float64{30, 10, 20}, baseline: []float64{10, 20, 40},
			want: contrast{present: 20, baseline: 20, ratio: 1, least: 0.5, most: 3},
		},
		"Even": {
			reason:  "A median of two is their mean.",
			present: []float64{1, 3}, baseline: []float64{4, 4},
			want: contrast{present: 2, baseline: 4, ratio: 0.5, least: 0.25, most: 0.75},
		},
		"One": {
			reason: "One pair has no spread.", present: []float64{3}, baseline: []float64{2},
			want: contrast{present: 3, baseline: 2, ratio: 1.5, least: 1.5, most: 1.5},
		},
		"Zero": {
			reason: "There is no ratio to nothing.", present: []float64{0, 1}, baseline: []float64{0, 0},
			want: contrast{present: 0.5, baseline: 0, ratio: none, least: none, most: none},
		},
		"SomeZeros": {
			reason: "A pair without a ratio is not in the spread.", present: []float64{1, 1, 4}, baseline: []float64{0, 2, 2},
			want: contrast{present: 1, baseline: 2, ratio: 0.5, least: 0.5, most: 2},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := contrastOf(tc.present, tc.baseline)
			check.Diff(t, tc.want, got, tc.reason, cmp.AllowUnexported(contrast{}), cmpopts.EquateNaNs())
		})
	}
}

// TestComparisonText: each scenario has a table, and a role that only one of both has is in it, without a ratio.
func TestComparisonText(t *testing.T) {
	result := func(perSecond float64, roles ...string) *Result {
		burst := run(perSecond)
		burst.CPUByRole = measure.CPU{}
		for _, role := range roles {
			burst.CPUByRole[role] = 5
		}
		return &Result{System: Trainyard, Workers: 2, Replicas: 2, Burst: burst, Live: &scenario.Live{BytesPerJob: 8000, RSS: 150}}
	}
	c := &Comparison{Present: "abc with changes", Baseline: "def", Pairs: []Pair{
		{Present: result(60, "hub: manager", "hub: new"), Baseline: result(50, "hub: manager")},
		{Present: result(66, "hub: manager", "hub: new"), Baseline: result(44, "hub: manager")},
	}}
	text := c.Text()
	for _, want := range []string{
		"trainyard, 2 managers, 2 workers, RTT 0 ms", "built from abc with changes", "built from def", "Pairs of runs: 2.", "medians of 2 runs",
		"| jobs per second (more is better) | 47.0 jobs/s | 63.0 jobs/s | 1.34 | 1.20 to 1.50 |",
		"| requests per job, hub reads | 0.00 | 0.00 | - | - |",
		"| CPU per job, hub: manager | 5.00 ms | 5.00 ms | 1.00 | 1.00 to 1.00 |", "| CPU per job, hub: new | - | - | - | - |",
		"| CPU per job, all | 5.00 ms | 10.0 ms | 2.00 | 2.00 to 2.00 |",
		"| live jobs | baseline | present | ratio | pairs |", "| memory of the manager | 150 MB | 150 MB | 1.00 | 1.00 to 1.00 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	if t.Failed() || strings.Contains(text, "%!") {
		t.Errorf("text:\n%s", text)
	}
}
