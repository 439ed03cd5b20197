// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// chart is lines over two axes.
type chart struct {
	title, subtitle string
	x, y            axis
	lines           []line
	// shaded is a part of the x axis, from and to. Equal: none.
	shaded      [2]float64
	shadedLabel string
}

// line is one system.
type line struct {
	name    string
	points  []point
	markers bool
	steps   bool // Each value holds until the next.
}

// point of a line. Low and High are the ends of its spread, equal if it has none.
type point struct{ x, y, low, high float64 }

// Sizes in units of the drawing.
const (
	width, height            = 880, 480
	left, right, top, bottom = 84, 226, 64, 64
	plotWidth, plotHeight    = width - left - right, height - top - bottom
)

// styles tell lines apart by color, and by dashes too where they are close. The colors of Okabe and Ito can be told
// apart with any kind of color vision.
var styles = []struct{ color, dash, shape string }{
	{"#0072B2", "", "circle"},
	{"#56B4E9", "", "square"},
	{"#009E73", "7 3", "diamond"},
	{"#000000", "2 3", "circle"},
	{"#CC79A7", "7 3", "square"},
	{"#E69F00", "", "diamond"},
	{"#D55E00", "", "circle"},
	{"#8C6D1F", "7 3", "square"},
}

// canvas collects SVG.
type canvas struct{ strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// text escapes texts of others.
func (c *canvas) text(x, y float64, attributes, s string) {
	c.add(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, attributes, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // A strings.Builder never fails.
	return b.String()
}

// write draws the chart.
func (c *chart) write(out io.Writer) error {
	canvas := &canvas{}
	canvas.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"`+
		` font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif" font-size="12" fill="#333">`, width, height, width, height)
	canvas.add(`<title>%s</title>`, escape(c.title))
	canvas.add(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	canvas.text(left, 28, `font-size="16" font-weight="bold" fill="#111"`, c.title)
	canvas.text(left, 47, `fill="#666"`, c.subtitle)
	c.axes(canvas)
	canvas.add(`<clipPath id="area"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`, left-6, top-6, plotWidth+12, plotHeight+12)
	canvas.add(`<g clip-path="url(#area)">`)
	for i := range c.lines {
		c.line(canvas, i)
	}
	canvas.add(`</g>`)
	c.legend(canvas)
	canvas.add(`</svg>`)
	_, err := io.WriteString(out, canvas.String())
	return err
}

// at is where a value is on the canvas.
func (c *chart) at(x, y float64) (float64, float64) {
	return left + c.x.share(x)*plotWidth, top + (1-c.y.share(y))*plotHeight
}

// axes draws grid, ticks and labels.
func (c *chart) axes(canvas *canvas) {
	if c.shaded[0] < c.shaded[1] {
		from, _ := c.at(c.shaded[0], 0)
		to, _ := c.at(c.shaded[1], 0)
		canvas.add(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#f3f6fa"/>`, from, top, to-from, plotHeight)
		canvas.text((from+to)/2, top+14, `text-anchor="middle" font-size="11" fill="#888"`, c.shadedLabel)
	}
	for _, t := range c.y.ticks {
		_, y := c.at(c.x.min, t.at)
		canvas.add(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e3e3e3"/>`, left, y, left+plotWidth, y)
		canvas.text(left-9, y+4, `text-anchor="end"`, t.label)
	}
	for _, t := range c.x.ticks {
		x, _ := c.at(t.at, c.y.min)
		canvas.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#efefef"/>`, x, top, x, top+plotHeight)
		canvas.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#888"/>`, x, top+plotHeight, x, top+plotHeight+5)
		canvas.text(x, top+plotHeight+20, `text-anchor="middle"`, t.label)
	}
	canvas.add(`<path d="M%d %dV%dH%d" fill="none" stroke="#888"/>`, left, top, top+plotHeight, left+plotWidth)
	canvas.text(left+plotWidth/2, height-18, `text-anchor="middle" font-size="13"`, c.x.label)
	canvas.text(0, 0, fmt.Sprintf(`text-anchor="middle" font-size="13" transform="translate(22 %d) rotate(-90)"`, top+plotHeight/2), c.y.label)
}

func (c *chart) line(canvas *canvas, i int) {
	l, style := &c.lines[i], styles[i%len(styles)]
	var path strings.Builder
	for j, p := range l.points {
		x, y := c.at(p.x, p.y)
		switch {
		case j == 0:
			fmt.Fprintf(&path, "M%.1f %.1f", x, y)
		case l.steps:
			fmt.Fprintf(&path, "H%.1fV%.1f", x, y)
		default:
			fmt.Fprintf(&path, "L%.1f %.1f", x, y)
		}
	}
	canvas.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.8" stroke-linejoin="round" stroke-dasharray="%s"/>`, path.String(),
		style.color, style.dash)
	if !l.markers {
		return
	}
	for _, p := range l.points {
		x, y := c.at(p.x, p.y)
		if p.low < p.high {
			_, low := c.at(p.x, p.low)
			_, high := c.at(p.x, p.high)
			canvas.add(`<path d="M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f %.1fh6" stroke="%s" fill="none" stroke-opacity="0.6"/>`, x, low, high, x-3, low,
				x-3, high, style.color)
		}
		marker(canvas, x, y, i)
	}
}

// marker of a line.
func marker(canvas *canvas, x, y float64, i int) {
	style := styles[i%len(styles)]
	switch style.shape {
	case "square":
		canvas.add(`<rect x="%.1f" y="%.1f" width="7" height="7" fill="%s" stroke="#fff"/>`, x-3.5, y-3.5, style.color)
	case "diamond":
		canvas.add(`<path d="M%.1f %.1fl5 5l-5 5l-5 -5z" fill="%s" stroke="#fff"/>`, x, y-5, style.color)
	default:
		canvas.add(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s" stroke="#fff"/>`, x, y, style.color)
	}
}

// legend names the lines, at the right.
func (c *chart) legend(canvas *canvas) {
	x := float64(left + plotWidth + 20)
	for i := range c.lines {
		y, style := float64(top+10+22*i), styles[i%len(styles)]
		canvas.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, x, y, x+28, y,
			style.color, style.dash)
		if c.lines[i].markers {
			marker(canvas, x+14, y, i)
		}
		canvas.text(x+36, y+4, "", c.lines[i].name)
	}
}
