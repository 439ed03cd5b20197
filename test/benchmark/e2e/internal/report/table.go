// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
)

// table is one in Markdown.
type table struct {
	strings.Builder
}

func newTable(columns ...string) *table {
	t := &table{}
	t.row(columns...)
	rule := slices.Repeat([]string{"---:"}, len(columns))
	rule[0] = "---"
	t.row(rule...)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintf(t, "| %s |\n", strings.Join(cells, " | ")) }

// Text is the report for people, in Markdown.
func (r *Report) Text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "Measured %s on %d CPUs (%s), %d GB; load before: %.1f.\n", r.Date.Format("2006-01-02 15:04 MST"), r.Machine.CPUs, r.Machine.Model,
		r.Machine.MemoryGB, r.Machine.Load)
	for _, part := range []struct{ title, text string }{
		{"Targets", r.targetTable()}, {"A burst of jobs", r.runTable(true)}, {"One job at a time", r.runTable(false)},
		{"Requests per job, of a burst", r.requestTable()}, {"CPU time by role, in ms per job", r.cpuTable()},
		{"Beside finished jobs", r.finishedTable()},
		{"Memory of jobs that run", r.liveTable()}, {"A rate that goes on", r.rateTable()},
		{"Many fake workers", r.manyTable()}, {"Jobs that are archived and deleted", r.expiryText()}, {"Dispatchers of MultiKueue on unequal workers", r.unequalTable()},
	} {
		if part.text != "" {
			fmt.Fprintf(&text, "\n### %s\n\n%s", part.title, part.text)
		}
	}
	for _, c := range r.Comparisons {
		fmt.Fprintf(&text, "\n%s", c.Text())
	}
	for _, result := range r.Results {
		if result.Error != "" {
			fmt.Fprintf(&text, "\n%s with %d workers at %g ms was not measured: %s\n", result.name(), result.Workers, result.RTT, result.Error)
		}
	}
	return text.String()
}

func (r *Report) runTable(burst bool) string {
	t := newTable("system", "workers", "RTT", "jobs", "jobs/s", "create → may run p50 / p95 / p99", "copy's end → hub p50 / p95 / p99", "CPU per job",
		"peak memory")
	rows := 0
	for _, result := range r.Results {
		run := result.Idle
		if burst {
			run = result.Burst
		}
		if run == nil {
			continue
		}
		rows++
		cpu, peak := "-", "-"
		if result.System != Floor {
			cpu, peak = fmt.Sprintf("%.1f ms", run.CPU), fmt.Sprintf("%.0f MB", run.Peak)
		}
		t.row(result.name(), fmt.Sprint(result.Workers), fmt.Sprintf("%g ms", result.RTT), fmt.Sprint(run.Jobs), fmt.Sprintf("%.1f", run.JobsPerSecond),
			fmt.Sprintf("%.0f / %.0f / %.0f ms", run.Start.P50, run.Start.P95, run.Start.P99),
			fmt.Sprintf("%.0f / %.0f / %.0f ms", run.End.P50, run.End.P95, run.End.P99), cpu, peak)
	}
	return nonEmpty(t, rows)
}

func nonEmpty(t *table, rows int) string {
	if rows == 0 {
		return ""
	}
	return t.String()
}

func (r *Report) requestTable() string {
	t := newTable("system", "workers", "RTT", "hub reads", "hub writes", "workers' reads", "workers' writes", "all")
	rows := 0
	for _, result := range r.Results {
		if result.Burst == nil {
			continue
		}
		rows++
		q := result.Burst.Requests
		t.row(result.name(), fmt.Sprint(result.Workers), fmt.Sprintf("%g ms", result.RTT), fmt.Sprintf("%.1f", q.HubReads), fmt.Sprintf("%.1f", q.HubWrites),
			fmt.Sprintf("%.1f", q.WorkerReads), fmt.Sprintf("%.1f", q.WorkerWrites), fmt.Sprintf("%.1f", q.HubReads+q.HubWrites+q.WorkerReads+q.WorkerWrites))
	}
	return nonEmpty(t, rows)
}

// cpuTable has a column for each role that a process had.
func (r *Report) cpuTable() string {
	roles := map[string]bool{}
	for _, result := range r.Results {
		for _, run := range result.runs() {
			for role := range run.CPUByRole {
				roles[role] = true
			}
		}
	}
	columns := slices.Sorted(maps.Keys(roles))
	t := newTable(slices.Concat([]string{"system", "workers", "RTT", "jobs"}, columns, []string{"all", "all, in cores"})...)
	for _, result := range r.Results {
		for _, run := range result.runs() {
			if len(run.CPUByRole) == 0 {
				continue // An earlier version of the benchmark measured it.
			}
			row := []string{result.name(), fmt.Sprint(result.Workers), fmt.Sprintf("%g ms", result.RTT), run.scenario}
			for _, role := range columns {
				cell := "-"
				if used, has := run.CPUByRole[role]; has {
					cell = fmt.Sprintf("%.1f", used)
				}
				row = append(row, cell)
			}
			all := run.CPUByRole.Sum()
			t.row(append(row, fmt.Sprintf("%.1f", all), fmt.Sprintf("%.2f", all/1000*float64(run.Jobs)/run.CPUSeconds))...)
		}
	}
	return nonEmpty(t, len(columns))
}

func (r *Report) finishedTable() string {
	t := newTable("system", "finished", "heap", "per job", "peak at start", "ready", "first job", "CPU of start",
		"requests of start hub / workers", "one at a time, may run p50", "burst jobs/s")
	rows := 0
	for _, result := range r.Results {
		for i := range result.Finished {
			f := &result.Finished[i]
			rows++
			burst := "-"
			if f.Burst != nil {
				burst = fmt.Sprintf("%.1f", f.Burst.JobsPerSecond)
			}
			t.row(result.name(), fmt.Sprint(f.Jobs), fmt.Sprintf("%.1f MB", f.Heap), fmt.Sprintf("%.1f KB", f.BytesPerJob/1000), fmt.Sprintf("%.0f MB", f.Peak),
				fmt.Sprintf("%.1f s", f.Ready), fmt.Sprintf("%.1f s", f.First), fmt.Sprintf("%.1f s", f.CPU),
				fmt.Sprintf("%d / %d", f.HubRequests, f.WorkerRequests), fmt.Sprintf("%.0f ms", f.OneByOne.Start.P50), burst)
		}
	}
	return nonEmpty(t, rows)
}

func (r *Report) liveTable() string {
	t := newTable("system", "live jobs", "heap per job", "memory of the process")
	rows := 0
	for _, result := range r.Results {
		if l := result.Live; l != nil {
			rows++
			t.row(result.name(), fmt.Sprint(l.Jobs), fmt.Sprintf("%.1f KB", l.BytesPerJob/1000), fmt.Sprintf("%.0f MB", l.RSS))
		}
	}
	return nonEmpty(t, rows)
}

func (r *Report) rateTable() string {
	t := newTable("system", "jobs/s", "for", "first tenth: may run p50 / p99", "last tenth", "cores", "peak memory")
	rows := 0
	for _, result := range r.Results {
		if x := result.Rate; x != nil {
			rows++
			t.row(result.name(), fmt.Sprintf("%.1f", x.PerSecond), fmt.Sprintf("%.0f s", x.Seconds),
				fmt.Sprintf("%.0f / %.0f ms", x.First.Start.P50, x.First.Start.P99), fmt.Sprintf("%.0f / %.0f ms", x.Last.Start.P50, x.Last.Start.P99),
				fmt.Sprintf("%.2f", x.Cores), fmt.Sprintf("%.0f MB", x.Run.Peak))
		}
	}
	return nonEmpty(t, rows)
}

func (r *Report) manyTable() string {
	m := r.Many
	if m == nil {
		return ""
	}
	t := newTable("workers", "heap per worker", "goroutines per worker", "memory of the process", "jobs/s", "idle: CPU, hub requests", "connected at first",
		"all back after all were silent", "CPU of that")
	t.row(fmt.Sprint(m.Workers), fmt.Sprintf("%.0f KB", m.BytesPerWorker/1000), fmt.Sprintf("%.1f", m.GoroutinesPerWorker), fmt.Sprintf("%.0f MB", m.RSS),
		fmt.Sprintf("%.1f", m.JobsPerSecond), fmt.Sprintf("%.3f cores, %.1f/s", m.IdleCores, m.IdleRequests), fmt.Sprintf("%.1f s", m.Connected), fmt.Sprintf("%.1f s", m.Reconnected), fmt.Sprintf("%.1f s", m.ReconnectCPU))
	return t.String()
}

func (r *Report) unequalTable() string {
	t := newTable("dispatcher", "jobs", "started at once", "started at all", "create → pods have nodes p50 / p95 / p99", "hub reads", "hub writes",
		"requests for Workloads on workers")
	rows := 0
	for i := range r.Unequal {
		u := &r.Unequal[i]
		rows++
		t.row(u.Dispatcher, fmt.Sprint(u.Jobs), fmt.Sprintf("%.0f %%", 100*u.AtOnce), fmt.Sprintf("%.0f %%", 100*u.Ever),
			fmt.Sprintf("%.0f / %.0f / %.0f ms", u.Start.P50, u.Start.P95, u.Start.P99), fmt.Sprintf("%.1f", u.HubReads), fmt.Sprintf("%.1f", u.HubWrites),
			fmt.Sprintf("%.1f", u.Workloads))
	}
	return nonEmpty(t, rows)
}

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
