// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/world"
	"github.com/trainyard/trainyard/test/simulation/internal/yard"
)

// Run is one simulation.
type Run struct {
	System string
	Seed   uint64
	Window world.Span
	Result world.Result
	// Effort of decisions. The zero value for systems of which only the behaviour is imitated.
	Effort yard.Effort
}

// Summary is what matters of a run. Durations are in seconds, shares from 0 to 1.
type Summary struct {
	System        string  `json:"system"`
	Seed          uint64  `json:"seed"`
	Utilisation   float64 `json:"utilisation"`
	Held          float64 `json:"held"`
	Fragmentation float64 `json:"fragmentation"`
	// Preemptions in the whole run, Lost the share of the GPU time of all jobs that had to be done again.
	Preemptions int     `json:"preemptions"`
	Lost        float64 `json:"lost"`
	// Unfinished jobs never got all their nodes. They do not count in any wait.
	Unfinished int `json:"unfinished"`
	// Pending is the mean time on a worker that did not have nodes for all pods. It is part of the wait.
	Pending float64 `json:"pending"`
	Wait    Wait    `json:"wait"`
	// Sizes and Priorities are the waits of some of the jobs.
	Sizes      []Part `json:"sizes"`
	Priorities []Part `json:"priorities"`
	// Decisions is how many times a job was placed or got a reason why it waits, and DecisionSeconds how long that took on
	// this machine.
	Decisions       int     `json:"decisions,omitempty"`
	Placements      int     `json:"placements,omitempty"`
	DecisionSeconds float64 `json:"decisionSeconds,omitempty"`
	// Series is the utilisation in steps of StepSeconds.
	StepSeconds float64   `json:"stepSeconds"`
	Series      []float64 `json:"series"`

	waits []float64 // Sorted.
}

// Wait is how long jobs waited.
type Wait struct {
	Jobs int     `json:"jobs"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// Part is the wait of some of the jobs.
type Part struct {
	Name string `json:"name"`
	Wait
}

// sizes of jobs, by GPUs.
var sizes = []struct {
	name string
	most int
}{
	{"1 GPU", 1},
	{"2-4", 4},
	{"5-8", 8},
	{"9-32", 32},
	{"33-64", 64},
	{"over 64", math.MaxInt},
}

// Summarize says what matters of a run.
func Summarize(run Run) Summary {
	u := run.Result.Usage
	s := Summary{
		System: run.System, Seed: run.Seed,
		Utilisation: share(u.Running, u.Available), Held: share(u.Held, u.Available), Fragmentation: share(u.Partial, u.Free),
		Decisions: run.Effort.Placed + run.Effort.Answered, Placements: run.Effort.Placed, DecisionSeconds: run.Effort.Took.Seconds(),
		StepSeconds: run.Result.Step.Seconds(), Series: run.Result.Series,
	}
	bySize, byPriority := make([][]float64, len(sizes)), map[int32][]float64{}
	var pending, lost, ran time.Duration
	for i := range run.Result.Records {
		r := &run.Result.Records[i]
		s.Preemptions += r.Evictions
		gpus := r.Job.GPUs()
		lost += r.Lost / time.Second * time.Duration(gpus)
		ran += r.Ran / time.Second * time.Duration(gpus)
		switch {
		case !r.Done:
			s.Unfinished++
			continue
		case !run.Window.Has(r.Job.Submitted):
			continue
		}
		wait := r.Wait().Seconds()
		pending += r.Pending
		s.waits = append(s.waits, wait)
		size := sizeOf(gpus)
		bySize[size] = append(bySize[size], wait)
		byPriority[r.Job.Priority] = append(byPriority[r.Job.Priority], wait)
	}
	s.Lost = share(float64(lost), float64(ran))
	s.Wait = waitOf(s.waits)
	s.Pending = pending.Seconds() / float64(max(len(s.waits), 1))
	s.Sizes, s.Priorities = partsOf(bySize), byRank(byPriority)
	return s
}

func sizeOf(gpus int) int {
	size := 0
	for gpus > sizes[size].most {
		size++
	}
	return size
}

func share(part, all float64) float64 {
	if all == 0 {
		return 0
	}
	return part / all
}

// waitOf sorts waits and sums them up.
func waitOf(waits []float64) Wait {
	if len(waits) == 0 {
		return Wait{}
	}
	slices.Sort(waits)
	var sum float64
	for _, wait := range waits {
		sum += wait
	}
	return Wait{
		Jobs: len(waits), Mean: sum / float64(len(waits)),
		P50: quantile(waits, 0.5), P95: quantile(waits, 0.95), P99: quantile(waits, 0.99),
	}
}

// quantile returns the smallest number that this share of the numbers does not exceed.
func quantile(sorted []float64, share float64) float64 {
	at := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// JSON writes all runs.
func JSON(out io.Writer, runs []Summary) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(runs)
}

// CSV writes one line for each run and size of jobs, and one for all sizes, named "all".
func CSV(out io.Writer, runs []Summary) error {
	w := csv.NewWriter(out)
	header := []string{
		"system", "seed", "jobs of", "jobs", "mean_wait_s", "p50_wait_s", "p95_wait_s", "p99_wait_s",
		"utilisation", "held", "fragmentation", "preemptions", "lost", "unfinished",
	}
	if err := w.Write(header); err != nil {
		return err
	}
	for i := range runs {
		s := &runs[i]
		parts := append([]Part{{Name: "all", Wait: s.Wait}}, s.Sizes...)
		for _, p := range append(parts, s.Priorities...) {
			line := []string{s.System, fmt.Sprint(s.Seed), p.Name, strconv.Itoa(p.Jobs)}
			for _, v := range []float64{p.Mean, p.P50, p.P95, p.P99, s.Utilisation, s.Held, s.Fragmentation} {
				line = append(line, strconv.FormatFloat(v, 'f', 4, 64))
			}
			line = append(line, strconv.Itoa(s.Preemptions), strconv.FormatFloat(s.Lost, 'f', 4, 64), strconv.Itoa(s.Unfinished))
			if err := w.Write(line); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}
