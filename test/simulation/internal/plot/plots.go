// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/trainyard/trainyard/test/simulation/internal/report"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// Plots are the drawings of a comparison.
type Plots struct {
	// Subtitle of all plots: what was simulated.
	Subtitle string
	Totals   []report.Total
	Window   world.Span
}

// Write writes wait-by-size.svg, wait-cdf.svg and utilisation.svg to a folder, which it creates.
func (p Plots) Write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, c := range map[string]*chart{
		"wait-by-size.svg": p.waitBySize(),
		"wait-cdf.svg":     p.waits(),
		"utilisation.svg":  p.utilisation(),
	} {
		if err := c.save(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

func (c *chart) save(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := c.write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// waitBySize has the mean wait of jobs by their GPUs, with the standard deviation between seeds.
func (p Plots) waitBySize() *chart {
	c := &chart{title: "Mean wait by size of the job", subtitle: p.Subtitle + "; bars: standard deviation between seeds"}
	var names []string
	most := 1.0
	for i := range p.Totals {
		l := line{name: p.Totals[i].System, markers: true}
		names = nil
		for at, size := range p.Totals[i].Sizes() {
			m := size.Mean
			names = append(names, size.Name)
			// Beside each other, so that the bars can be told apart.
			x := float64(at) + 0.05*(float64(i)-float64(len(p.Totals)-1)/2)
			l.points = append(l.points, point{x: x, y: m.Mean, low: m.Mean - m.Deviation, high: m.Mean + m.Deviation})
			most = max(most, m.Mean+m.Deviation)
		}
		c.lines = append(c.lines, l)
	}
	c.x, c.y = categories("GPUs of the job", names), logDurations("mean wait", most)
	return c
}

// waits has the share of jobs that waited longer than a time. Its axis is logarithmic, because most jobs do not wait at
// all.
func (p Plots) waits() *chart {
	c := &chart{title: "How many jobs waited how long", subtitle: p.Subtitle + "; all seeds together"}
	most := 1.0
	for i := range p.Totals {
		waits := p.Totals[i].Waits()
		if len(waits) == 0 {
			continue
		}
		c.lines = append(c.lines, line{name: p.Totals[i].System, points: exceedance(waits), steps: true})
		most = max(most, waits[len(waits)-1])
	}
	c.x = logDurations("time", most)
	c.y = axis{label: "jobs that waited longer", min: 1e-4, max: 1, log: true, ticks: []tick{
		{1e-4, "0.01 %"}, {1e-3, "0.1 %"}, {1e-2, "1 %"}, {0.1, "10 %"}, {1, "100 %"},
	}}
	return c
}

// exceedance returns the share of sorted waits that are longer than each wait. It returns so many points that the curve
// shows no false steps.
func exceedance(waits []float64) []point {
	var points []point
	shown := 2.0 // Of the last point.
	for i, wait := range waits {
		longer := float64(len(waits)-1-i) / float64(len(waits))
		if wait >= 1 && (longer < 0.985*shown || i == len(waits)-1) {
			if points == nil {
				points = append(points, point{x: 1, y: float64(len(waits)-i) / float64(len(waits))})
			}
			points = append(points, point{x: wait, y: longer})
			shown = longer
		}
	}
	return points
}

// utilisation has the share of GPUs that ran jobs over time, the mean of all seeds.
func (p Plots) utilisation() *chart {
	c := &chart{
		title: "Utilisation over time", subtitle: p.Subtitle + "; mean of all seeds",
		shaded: [2]float64{p.Window.From.Hours(), p.Window.To.Hours()}, shadedLabel: "measured",
	}
	low, high, end := 1.0, 0.0, 0.0
	for i := range p.Totals {
		step, series := p.Totals[i].Series()
		l := line{name: p.Totals[i].System}
		for at, share := range series {
			hours := (float64(at) + 0.5) * step.Hours()
			l.points = append(l.points, point{x: hours, y: share})
			if high = max(high, share); hours > p.Window.From.Hours() {
				low = min(low, share)
			}
		}
		end = max(end, step.Hours()*float64(len(series)))
		c.lines = append(c.lines, l)
	}
	c.x = linear("hours", 0, end, func(v float64) string { return fmt.Sprintf("%.4g", v) })
	c.y = linear("share of GPUs that run jobs", low-0.02, min(high+0.01, 1), percent)
	return c
}
