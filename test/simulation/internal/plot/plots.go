// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

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

// waitBySize has the mean wait of jobs by their GPUs, with the standard deviation between seeds.
func (p Plots) waitBySize() *chart {
	c := newChart("Mean wait by size of the job", p.Subtitle+"; bars: standard deviation between seeds", "GPUs of the job", "mean wait")
	most := 1.0
	for i := range p.Totals {
		var names []string
		var points plotter.XYs
		var spreads plotter.YErrors
		for at, size := range p.Totals[i].Sizes() {
			names = append(names, size.Name)
			// Beside each other, so that the bars can be told apart.
			x, y := float64(at)+0.05*(float64(i)-float64(len(p.Totals)-1)/2), max(size.Mean.Mean, 1)
			points = append(points, plotter.XY{X: x, Y: y})
			low, high := max(size.Mean.Mean-size.Mean.Deviation, 1), size.Mean.Mean+size.Mean.Deviation
			spreads = append(spreads, struct{ Low, High float64 }{y - low, max(high-y, 0)})
			most = max(most, high)
		}
		if len(points) == 0 {
			continue
		}
		c.line(p.Totals[i].System, points, func(*plotter.Line) {})
		c.markers(points, spreads)
		c.NominalX(names...)
	}
	logDurations(&c.Y, most)
	return c
}

// waits has the share of jobs that waited longer than a time. Its axis is logarithmic, because most jobs do not wait at
// all.
func (p Plots) waits() *chart {
	c := newChart("How many jobs waited how long", p.Subtitle+"; all seeds together", "time", "jobs that waited longer")
	c.Legend.Top = false // The longest lines begin there.
	most := 1.0
	for i := range p.Totals {
		waits := p.Totals[i].Waits()
		if len(waits) == 0 {
			continue
		}
		c.line(p.Totals[i].System, exceedance(waits), func(l *plotter.Line) { l.StepStyle = plotter.PostStep })
		most = max(most, waits[len(waits)-1])
	}
	logDurations(&c.X, most)
	c.Y.Scale, c.Y.Min, c.Y.Max = plot.LogScale{}, leastShare, 1
	c.Y.Tick.Marker = plot.ConstantTicks{
		{Value: leastShare, Label: "0.01 %"}, {Value: 1e-3, Label: "0.1 %"}, {Value: 1e-2, Label: "1 %"}, {Value: 0.1, Label: "10 %"},
		{Value: 1, Label: "100 %"},
	}
	return c
}

// leastShare is the smallest share of jobs that is drawn.
const leastShare = 1e-4

// exceedance returns the share of sorted waits that are longer than each wait. It returns so many points that the curve
// shows no false steps.
func exceedance(waits []float64) plotter.XYs {
	var points plotter.XYs
	shown := 2.0 // Of the last point.
	for i, wait := range waits {
		longer := float64(len(waits)-1-i) / float64(len(waits))
		if wait >= 1 && (longer < 0.985*shown || i == len(waits)-1) {
			if points == nil {
				points = append(points, plotter.XY{X: 1, Y: float64(len(waits)-i) / float64(len(waits))})
			}
			points = append(points, plotter.XY{X: wait, Y: max(longer, leastShare)})
			shown = longer
		}
	}
	if points == nil { // Nobody has waited.
		points = plotter.XYs{{X: 1, Y: leastShare}}
	}
	return points
}

// utilisation has the share of GPUs that ran jobs over time, the mean of all seeds.
func (p Plots) utilisation() *chart {
	c := newChart("Utilisation over time", p.Subtitle+"; mean of all seeds; shaded: measured", "hours", "share of GPUs that run jobs")
	low, high := 1.0, 0.0
	var lines []plotter.XYs
	for i := range p.Totals {
		step, series := p.Totals[i].Series()
		var points plotter.XYs
		for at, share := range series {
			hours := (float64(at) + 0.5) * step.Hours()
			points = append(points, plotter.XY{X: hours, Y: share})
			if high = max(high, share); hours > p.Window.From.Hours() {
				low = min(low, share)
			}
		}
		lines = append(lines, points)
	}
	low, high = low-0.02, min(high+0.01, 1)
	c.shade(p.Window.From.Hours(), p.Window.To.Hours(), low, high)
	for i, points := range lines {
		for at := range points {
			points[at].Y = max(points[at].Y, low)
		}
		c.line(p.Totals[i].System, points, func(*plotter.Line) {})
	}
	c.Y.Min, c.Y.Max, c.Y.Tick.Marker = low, high, percent
	return c
}
