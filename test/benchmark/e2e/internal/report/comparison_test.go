// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
	"github.com/trainyard/trainyard/test/check"
)

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
