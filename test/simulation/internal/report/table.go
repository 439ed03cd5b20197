// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Table writes a line for each system: what happened to GPUs and jobs, mean and 95th percentile of the waits by size,
// and how fast systems decided that are not imitated.
func Table(out io.Writer, totals []Total) error {
	w := newTable(out)
	fmt.Fprintln(w, "SYSTEM\tUTIL\tHELD\tFRAGM\tMEAN WAIT\tP50\tP95\tP99\tPENDING\tPREEMPT\tLOST\t")
	for i := range totals {
		t := &totals[i]
		share := func(measure func(*Summary) float64) string { return fmt.Sprintf("%.1f%%", 100*t.mean(measure)) }
		fmt.Fprintln(w, strings.Join([]string{
			t.System, t.Utilisation.percent(),
			share(func(s *Summary) float64 { return s.Held }),
			share(func(s *Summary) float64 { return s.Fragmentation }),
			t.Wait.duration(),
			duration(t.mean(func(s *Summary) float64 { return s.Wait.P50 })),
			duration(t.mean(func(s *Summary) float64 { return s.Wait.P95 })),
			duration(t.mean(func(s *Summary) float64 { return s.Wait.P99 })),
			duration(t.mean(func(s *Summary) float64 { return s.Pending })),
			fmt.Sprintf("%.0f", t.mean(func(s *Summary) float64 { return float64(s.Preemptions) })),
			share(func(s *Summary) float64 { return s.Lost }),
			t.unfinished(),
		}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := sizes2D(out, "MEAN WAIT", totals, func(s Size) string { return s.Mean.duration() }); err != nil {
		return err
	}
	if err := sizes2D(out, "P95 WAIT", totals, func(s Size) string { return duration(s.P95) }); err != nil {
		return err
	}
	return efforts(out, totals)
}

// Details writes the waits of each system by size, with all percentiles.
func Details(out io.Writer, totals []Total) error {
	for i := range totals {
		t := &totals[i]
		w := newTable(out)
		fmt.Fprintf(w, "\n%s\tJOBS\tMEAN WAIT\tP50\tP95\tP99\t\n", t.System)
		for _, s := range append(t.Sizes(), t.Priorities()...) {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t\n", s.Name, s.Jobs, s.Mean.duration(), duration(s.P50), duration(s.P95), duration(s.P99))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func newTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// sizes2D writes one measure of the waits: a line for each system, a column for each size.
func sizes2D(out io.Writer, title string, totals []Total, measure func(Size) string) error {
	w := newTable(out)
	for i := range totals {
		sizes := append(totals[i].Sizes(), totals[i].Priorities()...)
		if i == 0 {
			fmt.Fprintf(w, "\n%s\t", title)
			for _, s := range sizes {
				fmt.Fprintf(w, "%s\t", strings.ToUpper(s.Name))
			}
		}
		fmt.Fprintf(w, "\n%s\t", totals[i].System)
		for _, s := range sizes {
			fmt.Fprintf(w, "%s\t", measure(s))
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// efforts writes what decisions have cost.
func efforts(out io.Writer, totals []Total) error {
	w := newTable(out)
	first := true
	for i := range totals {
		t := &totals[i]
		if t.mean(func(s *Summary) float64 { return s.DecisionSeconds }) == 0 {
			continue
		}
		if first {
			fmt.Fprintln(w, "\nDECIDING\tJOBS PLACED\tPER SECOND\tANSWERS\tPER SECOND\t")
			first = false
		}
		placed, answers := func(s *Summary) int { return s.Placements }, func(s *Summary) int { return s.Decisions }
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%d\t%.0f\t\n", t.System, t.sum(placed), t.rate(placed), t.sum(answers), t.rate(answers))
	}
	return w.Flush()
}

func (t *Total) sum(count func(*Summary) int) int {
	sum := 0
	for i := range t.Runs {
		sum += count(&t.Runs[i])
	}
	return sum
}

// rate is how many there were in a second of deciding.
func (t *Total) rate(count func(*Summary) int) float64 {
	var seconds float64
	for i := range t.Runs {
		seconds += t.Runs[i].DecisionSeconds
	}
	return float64(t.sum(count)) / seconds
}

// unfinished is a note on jobs that never ran.
func (t *Total) unfinished() string {
	if jobs := t.sum(func(s *Summary) int { return s.Unfinished }); jobs > 0 {
		return fmt.Sprintf("%d jobs never got their nodes", jobs)
	}
	return ""
}

func (s Spread) duration() string {
	if s.Deviation == 0 {
		return duration(s.Mean)
	}
	return duration(s.Mean) + " ±" + duration(s.Deviation)
}

func (s Spread) percent() string {
	if s.Deviation == 0 {
		return fmt.Sprintf("%.1f%%", 100*s.Mean)
	}
	return fmt.Sprintf("%.1f%% ±%.1f", 100*s.Mean, 100*s.Deviation)
}

// duration formats seconds with two units at most: 4.2s, 17m05s, 3h20m, 4d06h.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d == 0:
		return "0"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
