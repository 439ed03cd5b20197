// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// styles tell lines apart by color, and by dashes too where they are close. The colors of Okabe and Ito can be told
// apart with any kind of color vision.
var styles = []struct {
	color  color.RGBA
	dashes []vg.Length
	shape  draw.GlyphDrawer
}{
	{color.RGBA{0x00, 0x72, 0xB2, 0xFF}, nil, draw.CircleGlyph{}},
	{color.RGBA{0x56, 0xB4, 0xE9, 0xFF}, nil, draw.BoxGlyph{}},
	{color.RGBA{0x00, 0x9E, 0x73, 0xFF}, []vg.Length{7, 3}, draw.PyramidGlyph{}},
	{color.RGBA{0x00, 0x00, 0x00, 0xFF}, []vg.Length{2, 3}, draw.CircleGlyph{}},
	{color.RGBA{0xCC, 0x79, 0xA7, 0xFF}, []vg.Length{7, 3}, draw.BoxGlyph{}},
	{color.RGBA{0xE6, 0x9F, 0x00, 0xFF}, nil, draw.PyramidGlyph{}},
	{color.RGBA{0xD5, 0x5E, 0x00, 0xFF}, nil, draw.CircleGlyph{}},
	{color.RGBA{0x8C, 0x6D, 0x1F, 0xFF}, []vg.Length{7, 3}, draw.BoxGlyph{}},
}

// chart is lines over two axes, with a legend.
type chart struct {
	*plot.Plot
	lines int
	err   error
}

func newChart(title, subtitle, x, y string) *chart {
	c := &chart{Plot: plot.New()}
	c.Title.Text = title + "\n" + subtitle
	c.X.Label.Text, c.Y.Label.Text = x, y
	c.Legend.Left, c.Legend.Top, c.Legend.XOffs = true, true, vg.Points(8)
	c.Add(plotter.NewGrid())
	return c
}

// line adds the line of a system.
func (c *chart) line(name string, points plotter.XYs, change func(*plotter.Line)) {
	l, err := plotter.NewLine(points)
	if err != nil {
		c.err = fmt.Errorf("draw %s: %w", name, err)
		return
	}
	style := styles[c.lines%len(styles)]
	c.lines++
	l.Color, l.Dashes, l.Width = style.color, style.dashes, vg.Points(1.5)
	change(l)
	c.Add(l)
	c.Legend.Add(name, l)
}

// markers adds a marker at each point of the last line, with the ends of its spread.
func (c *chart) markers(points plotter.XYs, spreads plotter.YErrors) {
	style := styles[(c.lines-1)%len(styles)]
	scatter, err := plotter.NewScatter(points)
	if err != nil {
		c.err = err
		return
	}
	scatter.GlyphStyle = draw.GlyphStyle{Color: style.color, Radius: vg.Points(3), Shape: style.shape}
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{points, spreads})
	if err != nil {
		c.err = err
		return
	}
	bars.Color = style.color
	c.Add(scatter, bars)
}

// shade marks a part of the x axis.
func (c *chart) shade(from, to, low, high float64) {
	area, err := plotter.NewPolygon(plotter.XYs{{X: from, Y: low}, {X: to, Y: low}, {X: to, Y: high}, {X: from, Y: high}})
	if err != nil {
		c.err = err
		return
	}
	area.Color, area.LineStyle.Width = color.RGBA{0xF3, 0xF6, 0xFA, 0xFF}, 0
	c.Add(area)
}

func (c *chart) save(name string) error {
	if c.err != nil {
		return c.err
	}
	return c.Save(10*vg.Inch, 5.5*vg.Inch, name)
}

// durations that people count in, in seconds.
var durations = plot.ConstantTicks{
	{Value: 1, Label: "≤ 1 s"}, {Value: 10, Label: "10 s"}, {Value: 60, Label: "1 min"}, {Value: 300, Label: "5 min"},
	{Value: 1800, Label: "30 min"}, {Value: 3600, Label: "1 h"}, {Value: 4 * 3600, Label: "4 h"}, {Value: 12 * 3600, Label: "12 h"},
	{Value: 24 * 3600, Label: "1 d"}, {Value: 3 * 24 * 3600, Label: "3 d"}, {Value: 7 * 24 * 3600, Label: "7 d"},
	{Value: 30 * 24 * 3600, Label: "30 d"},
}

// logDurations makes an axis one of seconds from one second up to at least most.
func logDurations(a *plot.Axis, most float64) {
	end := slices.IndexFunc(durations, func(t plot.Tick) bool { return t.Value >= most })
	if end < 0 {
		end = len(durations) - 1
	}
	end = max(end, 2)
	a.Scale, a.Tick.Marker = plot.LogScale{}, durations[:end+1]
	a.Min, a.Max = 1, durations[end].Value
}

// percent labels the usual ticks of shares.
var percent = plot.TickerFunc(func(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = fmt.Sprintf("%.3g %%", 100*ticks[i].Value)
		}
	}
	return ticks
})
