// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
	"github.com/trainyard/trainyard/test/simulation/internal/yard"
)

// record of a job that waited, ran for 100 s and lost some of that.
func record(submitted, wait time.Duration, gpus int, priority int32, lost time.Duration) world.Record {
	r := world.Record{
		Job:  &stream.Job{Submitted: submitted, Priority: priority, Pods: []stream.Pods{{Count: 1, GPUs: gpus}}},
		Done: true, Ran: 100 * time.Second, Lost: lost, Pending: wait / 2, Ended: submitted + wait + 100*time.Second,
	}
	if lost > 0 {
		r.Evictions = 1
	}
	return r
}

func TestSummarize(t *testing.T) {
	outside := record(5*time.Second, time.Hour, 1, 0, 0)
	unfinished := record(15*time.Second, 0, 1, 0, 0)
	unfinished.Done = false
	got := Summarize(Run{
		System: "s", Seed: 3, Window: world.Span{From: 10 * time.Second, To: 20 * time.Second},
		Effort: yard.Effort{Placed: 3, Answered: 2, Took: time.Second},
		Result: world.Result{
			Step:  time.Minute,
			Usage: world.Usage{Available: 1000, Running: 800, Held: 50, Free: 150, Partial: 30},
			Records: []world.Record{
				outside, unfinished,
				record(10*time.Second, 40*time.Second, 1, 0, 0), record(11*time.Second, 20*time.Second, 1, 7, 0),
				record(19*time.Second, 0, 96, 0, 50*time.Second),
			},
		},
	})
	want := Summary{
		System: "s", Seed: 3, Utilisation: 0.8, Held: 0.05, Fragmentation: 0.2, Preemptions: 1, Lost: 4800.0 / 10000, Unfinished: 1,
		Pending: 10, Wait: Wait{Jobs: 3, Mean: 20, P50: 20, P95: 40, P99: 40}, Decisions: 5, Placements: 3, DecisionSeconds: 1, StepSeconds: 60,
		Sizes: []Part{
			{Name: "1 GPU", Wait: Wait{Jobs: 2, Mean: 30, P50: 20, P95: 40, P99: 40}},
			{Name: "2-4"}, {Name: "5-8"}, {Name: "9-32"}, {Name: "33-64"}, {Name: "over 64", Wait: Wait{Jobs: 1}},
		},
		Priorities: []Part{
			{Name: "priority 7", Wait: Wait{Jobs: 1, Mean: 20, P50: 20, P95: 20, P99: 20}},
			{Name: "priority 0", Wait: Wait{Jobs: 2, Mean: 20, P50: 0, P95: 40, P99: 40}},
		},
	}
	check.Diff(t, want, got, "", cmpopts.IgnoreUnexported(Summary{}), cmpopts.EquateApprox(0, 1e-3))
}

func TestCombine(t *testing.T) {
	summary := func(system string, mean float64) Summary {
		return Summary{System: system, Wait: Wait{Mean: mean}, Sizes: []Part{{Name: "1 GPU", Wait: Wait{Jobs: 2, Mean: mean}}, {Name: "2-4"}}}
	}
	totals := Combine([]Summary{summary("a", 10), summary("b", 5), summary("a", 14)})
	if len(totals) != 2 || totals[0].System != "a" || len(totals[0].Runs) != 2 {
		t.Fatalf("got %+v", totals)
	}
	if got := totals[0].Wait; got.Mean != 12 || math.Abs(got.Deviation-2*math.Sqrt2) > 1e-9 {
		t.Errorf("10 and 14 are %+v, want 12 ±2.83", got)
	}
	check.Diff(t, []Size{{Name: "1 GPU", Jobs: 4, Mean: totals[0].Wait}}, totals[0].Sizes(),
		"sizes without jobs are to be left out")
}

func TestDuration(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0", 4.24: "4.2s", 61: "1m01s", 3600: "1h00m", 47.5 * 3600: "47h30m", 50 * 3600: "2d02h",
	} {
		check.Equal(t, want, duration(seconds), "%v seconds", seconds)
	}
}

func TestOutputs(t *testing.T) {
	runs := []Summary{
		{System: "one", Seed: 1, Unfinished: 3, DecisionSeconds: 2, Placements: 10, Sizes: []Part{{Name: "1 GPU", Wait: Wait{Jobs: 1, Mean: 90}}}},
		{System: "two", Seed: 1, Sizes: []Part{{Name: "1 GPU", Wait: Wait{Jobs: 1}}}},
	}
	var table, document, lines bytes.Buffer
	check.Must(t, Table(&table, Combine(runs)))
	for _, want := range []string{"3 jobs never got their nodes", "1m30s", "DECIDING"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, table.String())
		}
	}
	check.Must(t, JSON(&document, runs))
	var read []Summary
	check.Must(t, json.Unmarshal(document.Bytes(), &read))
	check.Diff(t, runs, read, "JSON", cmpopts.IgnoreUnexported(Summary{}))
	check.Must(t, CSV(&lines, runs))
	records, err := csv.NewReader(&lines).ReadAll()
	if err != nil || len(records) != 5 || records[2][2] != "1 GPU" || records[2][4] != "90.0000" {
		t.Errorf("CSV is %v, error %v", records, err)
	}
}
