// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// width is how many columns the bar of the whole job has.
const width = 40

// Bars draws a trace as bars, a line for each span, with the first and last time above. now is the end of spans that go
// on.
func (t *Tree) Bars(now time.Time) []string {
	root := &t.Spans[0]
	scale := newScale(t.Spans, now)
	names := make([]string, len(t.Spans))
	longest := 0
	for i := range t.Spans {
		names[i] = t.nameOf(i)
		longest = max(longest, utf8.RuneCountInString(names[i]))
	}
	total := passed(scale.length)
	lines := []string{
		fmt.Sprintf("TrainJob %s, trace %s, from %s", t.Job, t.ID, root.From.UTC().Format(time.RFC3339)), "",
		fmt.Sprintf("%-*s  %7s  %7s  0%*s", longest, "", "FROM", "TIME", width-1, total),
	}
	for i := range t.Spans {
		span := &t.Spans[i]
		end := span.To
		if span.Open() {
			end = now
		}
		line := fmt.Sprintf("%s%s  %7s  %7s  %s", names[i], strings.Repeat(" ", longest-utf8.RuneCountInString(names[i])),
			passed(span.From.Sub(scale.from)), passed(end.Sub(span.From)), scale.bar(span.From, end, span.Open()))
		if words := span.words(); words != "" && span.Name != Root {
			line += "  " + words
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// passed is a duration in few letters.
func passed(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

func (s *Span) words() string {
	text := string(s.Outcome)
	if message := strings.Join(strings.Fields(s.Message), " "); message != "" && text != "" {
		text += ": " + message
	}
	return text
}

// nameOf is the name of a span with its branch of the tree.
func (t *Tree) nameOf(at int) string {
	span := &t.Spans[at]
	name := span.Name
	if name == Attempt {
		name = fmt.Sprintf("attempt %d", span.Attempt)
		if span.Worker != "" {
			name += " on " + string(span.Worker)
		}
	}
	branch := ""
	for own := true; t.Spans[at].Parent != (SpanID{}); own = false {
		piece := "│ "
		switch last := t.isLast(at); {
		case own && last:
			piece = "└ "
		case own:
			piece = "├ "
		case last:
			piece = "  "
		}
		branch, at = piece+branch, t.index(t.Spans[at].Parent)
	}
	return branch + name
}

func (t *Tree) index(id SpanID) int {
	for i := range t.Spans {
		if t.Spans[i].ID == id {
			return i
		}
	}
	return 0
}

// isLast is true for the last span of its parent.
func (t *Tree) isLast(at int) bool {
	for i := at + 1; i < len(t.Spans); i++ {
		if t.Spans[i].Parent == t.Spans[at].Parent {
			return false
		}
	}
	return true
}

// scale maps times to columns.
type scale struct {
	from   time.Time
	length time.Duration
}

func newScale(spans []Span, now time.Time) scale {
	s := scale{from: spans[0].From}
	for i := range spans {
		end := spans[i].To
		if spans[i].Open() {
			end = now
		}
		s.length = max(s.length, end.Sub(s.from))
	}
	return s
}

// column is 0 to width.
func (s scale) column(at time.Time) int {
	if s.length <= 0 {
		return 0
	}
	return max(0, min(width, int(int64(width)*int64(at.Sub(s.from)/time.Millisecond)/max(1, int64(s.length/time.Millisecond)))))
}

// bar is a bar of width columns. Each span has one column at least.
func (s scale) bar(from, to time.Time, open bool) string {
	first, end := min(s.column(from), width-1), s.column(to)
	end = max(end, first+1)
	cells := strings.Repeat("█", end-first)
	if open {
		cells = strings.Repeat("█", end-first-1) + "▶"
	}
	return strings.Repeat(" ", first) + cells + strings.Repeat(" ", width-end)
}
