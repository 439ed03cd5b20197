// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"math"
)

// axis is a range of values. The smallest and the largest value are at its ends.
type axis struct {
	label    string
	min, max float64
	log      bool
	ticks    []tick
}

type tick struct {
	at    float64
	label string
}

// share is where a value is between the ends, 0 to 1. Values beyond the ends are at the ends.
func (a *axis) share(v float64) float64 {
	v = min(max(v, a.min), a.max)
	if a.log {
		return math.Log(v/a.min) / math.Log(a.max/a.min)
	}
	return (v - a.min) / (a.max - a.min)
}

// durations that people count in, in seconds.
var durations = []tick{
	{1, "1 s"}, {10, "10 s"}, {60, "1 min"}, {300, "5 min"}, {1800, "30 min"}, {3600, "1 h"}, {4 * 3600, "4 h"}, {12 * 3600, "12 h"},
	{24 * 3600, "1 d"}, {3 * 24 * 3600, "3 d"}, {7 * 24 * 3600, "7 d"}, {30 * 24 * 3600, "30 d"},
}

// logDurations is an axis of seconds from one second up to at least most. Smaller values are at its lower end.
func logDurations(label string, most float64) axis {
	a := axis{label: label, min: 1, log: true}
	for _, t := range durations {
		a.ticks = append(a.ticks, t)
		if a.max = t.at; a.max >= most && len(a.ticks) > 2 {
			break
		}
	}
	a.ticks[0].label = "≤ 1 s"
	return a
}

// linear is an axis with about five ticks at round numbers.
func linear(label string, low, high float64, format func(float64) string) axis {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/5)+1e-9))
	for _, factor := range []float64{5, 2} {
		if (high-low)/(step*factor) >= 4 {
			step *= factor
			break
		}
	}
	a := axis{label: label, min: math.Floor(low/step+1e-9) * step, max: math.Ceil(high/step-1e-9) * step}
	for i := 0; a.min+float64(i)*step <= a.max+step/2; i++ {
		at := a.min + float64(i)*step
		a.ticks = append(a.ticks, tick{at: at, label: format(at)})
	}
	return a
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// categories is an axis of names.
func categories(label string, names []string) axis {
	a := axis{label: label, min: -0.4, max: float64(len(names)) - 0.6}
	for i, name := range names {
		a.ticks = append(a.ticks, tick{at: float64(i), label: name})
	}
	return a
}
