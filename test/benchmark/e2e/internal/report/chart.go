// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// chart is bars on a logarithmic axis.
type chart struct {
	file, title, unit string
	bars              []bar
}

type bar struct {
	label, system string
	value         float64
}

// Sizes in units of the drawing.
const (
	chartWidth  = 880
	chartLeft   = 250
	chartRight  = 110
	chartTop    = 60
	barHeight   = 18
	barDistance = 26
)

// colors are the colors of Okabe and Ito, which people with any kind of color vision can tell apart.
var colors = map[string]string{Floor: "#999999", Trainyard: "#0072B2", MultiKueue: "#D55E00", Tuned: "#E69F00"}

// charts are the drawings of what was measured.
func (r *Report) charts() []chart {
	all := []chart{
		{file: "throughput.svg", title: "Jobs per second, from the first creation to the last end", unit: "jobs/s"},
		{file: "start.svg", title: "One job at a time: from creation until its copy may run (median)", unit: "ms"},
		{file: "end.svg", title: "One job at a time: from the copy's end to the hub's knowledge of it (median)", unit: "ms"},
		{file: "requests.svg", title: "API requests per job, hub and workers", unit: "requests"},
	}
	for _, result := range r.Results {
		label := fmt.Sprintf("%s, %d workers, %g ms", result.name(), result.Workers, result.RTT)
		add := func(c *chart, value float64) { c.bars = append(c.bars, bar{label, result.System, value}) }
		if result.Burst != nil {
			q := result.Burst.Requests
			add(&all[0], result.Burst.JobsPerSecond)
			add(&all[3], q.HubReads+q.HubWrites+q.WorkerReads+q.WorkerWrites)
		}
		if result.Idle != nil {
			add(&all[1], result.Idle.Start.P50)
			add(&all[2], result.Idle.End.P50)
		}
	}
	var drawn []chart
	for i := range all {
		if len(all[i].bars) > 0 {
			drawn = append(drawn, all[i])
		}
	}
	return drawn
}

// decades are the powers of ten around all values.
func (c *chart) decades() (low, high int) {
	least, most := math.Inf(1), 0.0
	for _, b := range c.bars {
		least, most = min(least, max(b.value, 0.01)), max(most, b.value)
	}
	low, high = int(math.Floor(math.Log10(least))), int(math.Ceil(math.Log10(max(most, 0.01))))
	return low, max(high, low+1)
}

// svg draws the chart.
func (c *chart) svg() string {
	var out strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	height := chartTop + barDistance*len(c.bars) + 40
	low, high := c.decades()
	at := func(value float64) float64 {
		share := (math.Log10(max(value, math.Pow10(low))) - float64(low)) / float64(high-low)
		return chartLeft + share*(chartWidth-chartLeft-chartRight)
	}
	add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"`+
		` font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif" font-size="12" fill="#333">`, chartWidth, height, chartWidth, height)
	add(`<title>%s</title>`, escape(c.title))
	add(`<rect width="%d" height="%d" fill="#fff"/>`, chartWidth, height)
	add(`<text x="20" y="28" font-size="16" font-weight="bold" fill="#111">%s</text>`, escape(c.title))
	for decade := low; decade <= high; decade++ {
		x := at(math.Pow10(decade))
		add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e3e3e3"/>`, x, chartTop-8, x, height-30)
		add(`<text x="%.1f" y="%d" text-anchor="middle">%g</text>`, x, height-14, math.Pow10(decade))
	}
	add(`<text x="%d" y="%d">%s</text>`, chartWidth-chartRight+30, height-14, escape(c.unit))
	for i, b := range c.bars {
		y := chartTop + barDistance*i
		add(`<text x="%d" y="%d" text-anchor="end">%s</text>`, chartLeft-8, y+13, escape(b.label))
		add(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, chartLeft, y, at(b.value)-chartLeft, barHeight, colors[b.system])
		add(`<text x="%.1f" y="%d">%.3g</text>`, at(b.value)+6, y+13, b.value)
	}
	add(`</svg>`)
	return out.String()
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // A strings.Builder never fails.
	return b.String()
}
