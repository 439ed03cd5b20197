// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// partsOf returns the waits of all sizes, also of sizes without jobs, so that runs can be compared.
func partsOf(waits [][]float64) []Part {
	parts := make([]Part, len(sizes))
	for i := range sizes {
		parts[i] = Part{Name: sizes[i].name, Wait: waitOf(waits[i])}
	}
	return parts
}

// byRank returns the waits of each priority, the highest first.
func byRank(waits map[int32][]float64) []Part {
	var parts []Part
	for _, priority := range slices.Backward(slices.Sorted(maps.Keys(waits))) {
		parts = append(parts, Part{Name: fmt.Sprint("priority ", priority), Wait: waitOf(waits[priority])})
	}
	return parts
}

// Spread is the mean over seeds, and the standard deviation.
type Spread struct{ Mean, Deviation float64 }

// Total is what runs of one system with several seeds have in common.
type Total struct {
	System string
	Runs   []Summary
	// Wait is the mean wait, Utilisation the share of GPU time.
	Wait, Utilisation Spread
}

// Combine puts the runs of each system together, in the order in which the systems are first met.
func Combine(runs []Summary) []Total {
	var totals []Total
	for _, run := range runs {
		at := slices.IndexFunc(totals, func(t Total) bool { return t.System == run.System })
		if at < 0 {
			at = len(totals)
			totals = append(totals, Total{System: run.System})
		}
		totals[at].Runs = append(totals[at].Runs, run)
	}
	for i := range totals {
		t := &totals[i]
		t.Wait = t.spread(func(s *Summary) float64 { return s.Wait.Mean })
		t.Utilisation = t.spread(func(s *Summary) float64 { return s.Utilisation })
	}
	return totals
}

// spread of a measure over the runs.
func (t *Total) spread(measure func(*Summary) float64) Spread {
	var sum, squares float64
	for i := range t.Runs {
		sum += measure(&t.Runs[i])
	}
	mean := sum / float64(len(t.Runs))
	for i := range t.Runs {
		squares += math.Pow(measure(&t.Runs[i])-mean, 2)
	}
	if len(t.Runs) == 1 {
		return Spread{Mean: mean}
	}
	return Spread{Mean: mean, Deviation: math.Sqrt(squares / float64(len(t.Runs)-1))}
}

func (t *Total) mean(measure func(*Summary) float64) float64 { return t.spread(measure).Mean }

// Size is the wait of jobs of a size, or of a priority.
type Size struct {
	Name string
	// Jobs of all seeds.
	Jobs          int
	Mean          Spread
	P50, P95, P99 float64
}

// Sizes returns the waits by size.
func (t *Total) Sizes() []Size { return t.parts(func(s *Summary) []Part { return s.Sizes }) }

// Priorities returns the waits by priority, the highest first, and none if all jobs have the same.
func (t *Total) Priorities() []Size {
	if list := t.parts(func(s *Summary) []Part { return s.Priorities }); len(list) > 1 {
		return list
	}
	return nil
}

func (t *Total) parts(pick func(*Summary) []Part) []Size {
	var names []string // In the order of the run that has the most of them.
	for i := range t.Runs {
		if parts := pick(&t.Runs[i]); len(parts) > len(names) {
			names = names[:0]
			for _, p := range parts {
				names = append(names, p.Name)
			}
		}
	}
	var list []Size
	for _, name := range names {
		of := func(s *Summary) Wait {
			parts := pick(s)
			if at := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name }); at >= 0 {
				return parts[at].Wait
			}
			return Wait{}
		}
		size := Size{
			Name: name,
			Mean: t.spread(func(s *Summary) float64 { return of(s).Mean }),
			P50:  t.mean(func(s *Summary) float64 { return of(s).P50 }),
			P95:  t.mean(func(s *Summary) float64 { return of(s).P95 }),
			P99:  t.mean(func(s *Summary) float64 { return of(s).P99 }),
		}
		for r := range t.Runs {
			size.Jobs += of(&t.Runs[r]).Jobs
		}
		if size.Jobs > 0 {
			list = append(list, size)
		}
	}
	return list
}

// Waits of all jobs of all seeds, in seconds, sorted.
func (t *Total) Waits() []float64 {
	var waits []float64
	for i := range t.Runs {
		waits = append(waits, t.Runs[i].waits...)
	}
	slices.Sort(waits)
	return waits
}

// Series is the utilisation over time, the mean of all seeds.
func (t *Total) Series() (step time.Duration, series []float64) {
	for i := range t.Runs {
		r := &t.Runs[i]
		if series == nil {
			step, series = time.Duration(r.StepSeconds*float64(time.Second)), make([]float64, len(r.Series))
		}
		for at, share := range r.Series {
			series[at] += share / float64(len(t.Runs))
		}
	}
	return step, series
}
