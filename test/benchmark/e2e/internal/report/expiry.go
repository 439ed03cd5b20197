// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
)

// shownLevels is how many levels of a run the table has.
const shownLevels = 8

// expiryText has a table of levels, and one of what has grown.
func (r *Report) expiryText() string {
	e := r.Expiry
	if e == nil {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d jobs ended in %.0f s (%.1f/s); TTL %.0f s; %d entries in the archive; %.1f ms of the manager's CPU for a job.\n\n",
		e.Jobs, e.Seconds, float64(e.Jobs)/e.Seconds, e.TTL, e.Archived, e.CPU)
	text.WriteString(levelTable(e))
	if growth := growthTable(e); growth != "" {
		fmt.Fprintf(&text, "\n%s", growth)
	}
	return text.String()
}

// levelTable has a column for each of some levels.
func levelTable(e *scenario.Expiry) string {
	levels := []scenario.Level{e.Before}
	for i := 1; i <= shownLevels && len(e.Levels) > 0; i++ {
		levels = append(levels, e.Levels[max(i*len(e.Levels)/shownLevels, 1)-1])
	}
	if e.After != nil {
		levels = append(levels, *e.After)
	}
	head, jobs := []string{"minutes"}, []string{"jobs that have ended"}
	for i := range levels {
		head, jobs = append(head, fmt.Sprintf("%.0f", levels[i].Seconds/60)), append(jobs, fmt.Sprint(levels[i].Jobs))
	}
	t := newTable(head...)
	t.row(jobs...)
	names, bytes := scenario.Figures()
	for _, name := range names {
		row := []string{name}
		for i := range levels {
			row = append(row, figure(levels[i].Figures[name], bytes[name]))
		}
		t.row(row...)
	}
	return t.String()
}

// growthTable compares the second with the last quarter of the run.
func growthTable(e *scenario.Expiry) string {
	t := newTable("", "mean of the second quarter", "least to most", "mean of the last quarter", "least to most", "growth per job",
		"at the same number of TrainJobs")
	names, bytes := scenario.Figures()
	rows := 0
	for _, name := range names {
		g, ok := e.Growth(name)
		if !ok {
			continue
		}
		rows++
		within := func(r [2]float64) string { return figure(r[0], bytes[name]) + " to " + figure(r[1], bytes[name]) }
		perJob := func(value float64) string {
			if bytes[name] {
				return fmt.Sprintf("%.0f B", value)
			}
			return fmt.Sprintf("%.4f", value)
		}
		adjusted := "-"
		if name != scenario.TrainJobs {
			adjusted = perJob(g.Adjusted)
		}
		t.row(name, figure(g.Second, bytes[name]), within(g.SecondRange), figure(g.Last, bytes[name]), within(g.LastRange),
			perJob(g.PerJob), adjusted)
	}
	return nonEmpty(t, rows)
}

// figure is a number, or MB.
func figure(value float64, bytes bool) string {
	if bytes {
		return fmt.Sprintf("%.1f MB", value/1e6)
	}
	return fmt.Sprintf("%.0f", value)
}

// LevelText is a level in one line.
func LevelText(l *scenario.Level) string {
	parts := []string{fmt.Sprintf("%.0f s, %d jobs", l.Seconds, l.Jobs)}
	names, bytes := scenario.Figures()
	for _, name := range names {
		parts = append(parts, name+": "+figure(l.Figures[name], bytes[name]))
	}
	return strings.Join(parts, "; ")
}
