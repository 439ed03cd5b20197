// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
)

// target is what the project wants, and what was measured.
type target struct {
	what string
	// want is the limit: got has to be at least that, or, if most, at most.
	want, got float64
	most      bool
	unit      string
}

func (t target) met() bool {
	if t.most {
		return t.got <= t.want
	}
	return t.got >= t.want
}

func (r *Report) targetTable() string {
	targets := r.targets()
	table := newTable("target", "want", "measured", "")
	for _, t := range targets {
		sign, met := "≥", "missed"
		if t.most {
			sign = "≤"
		}
		if t.met() {
			met = "met"
		}
		table.row(t.what, fmt.Sprintf("%s %.3g%s", sign, t.want, t.unit), fmt.Sprintf("%.3g%s", t.got, t.unit), met)
	}
	return nonEmpty(table, len(targets))
}

// targets returns the targets for which everything was measured.
func (r *Report) targets() []target {
	all := append(r.throughputTargets(), r.distanceTargets()...)
	all = append(all, r.idleTargets()...)
	ours := r.find(Trainyard, 2, 0)
	if ours == nil {
		return all
	}
	if ours.Burst != nil {
		all = append(all, budgetOf(ours.Burst)...)
	}
	return append(append(all, memoryTargets(ours)...), rateTargets(ours)...)
}

func (r *Report) throughputTargets() []target {
	ours := r.find(Trainyard, 2, 0)
	if ours == nil || ours.Burst == nil {
		return nil
	}
	var all []target
	for _, other := range []struct {
		system string
		want   float64
	}{{Tuned, 10}, {MultiKueue, 60}, {Floor, 0.6}} {
		if result := r.find(other.system, 2, 0); result != nil && result.Burst != nil {
			all = append(all, target{
				what: "1. jobs/s, 2 workers, 0 ms, of " + other.system + "'s", want: other.want, unit: " times",
				got: ours.Burst.JobsPerSecond / result.Burst.JobsPerSecond,
			})
		}
	}
	return all
}

// distanceTargets are for the largest number of workers that was measured at 100 ms.
func (r *Report) distanceTargets() []target {
	workers := 0
	for _, result := range r.Results {
		if result.System == Trainyard && result.RTT == 100 && !result.GarbageCollector && result.Replicas+result.Agents == 0 && result.Burst != nil {
			workers = max(workers, result.Workers)
		}
	}
	ours := r.find(Trainyard, workers, 100)
	if ours == nil {
		return nil
	}
	var all []target
	add := func(other *Result, what string, want float64) {
		if other != nil && other.Burst != nil {
			all = append(all, target{
				what: fmt.Sprintf("2. jobs/s, %d workers, 100 ms, of %s", workers, what), want: want, unit: " times",
				got: ours.Burst.JobsPerSecond / other.Burst.JobsPerSecond,
			})
		}
	}
	add(r.find(Tuned, workers, 100), "multikueue-tuned's", 20)
	add(r.find(Trainyard, workers, 0), "ours at 0 ms", 0.8)
	return all
}

// idleTargets count in round trips to an API server: the time in which the hub took a job from a user, while nothing
// else was done.
func (r *Report) idleTargets() []target {
	ours, floor := r.find(Trainyard, 2, 0), r.find(Floor, 2, 0)
	if ours == nil || floor == nil || ours.Idle == nil || floor.Idle == nil {
		return nil
	}
	trip := floor.Idle.Write.P50
	all := []target{
		{
			what: "3. idle, create → may run p50, above the floor's", want: 3, most: true, unit: " round trips",
			got: (ours.Idle.Start.P50 - floor.Idle.Start.P50) / trip,
		},
		{what: "3. idle, copy's end → hub p50", want: 2, most: true, unit: " round trips", got: ours.Idle.End.P50 / trip},
	}
	if kueue := r.find(MultiKueue, 2, 0); kueue != nil && kueue.Idle != nil {
		all = append(all,
			target{what: "3. idle, create → may run p50, below multikueue's", want: 8, unit: " times", got: kueue.Idle.Start.P50 / ours.Idle.Start.P50},
			target{what: "3. idle, copy's end → hub p50, below multikueue's", want: 30, unit: " times", got: kueue.Idle.End.P50 / ours.Idle.End.P50})
	}
	return all
}

// budgetOf are the writes and reads per job that docs/design.md promises. Events are best effort, and not in it.
func budgetOf(run *scenario.Run) []target {
	q := run.Requests
	events := q.Hub["POST events"] + q.Hub["PATCH events"]
	return []target{
		{what: "4. hub: Dispatches created per job", want: 1, most: true, got: q.Hub["POST dispatches"]},
		{what: "4. hub: writes per job, without Events", want: 5, most: true, got: q.HubWrites - events},
		{what: "4. hub: Events per job", want: 3, most: true, got: events},
		{what: "4. workers: writes per job", want: 2, most: true, got: q.WorkerWrites},
		{what: "4. hub: reads per job", want: 0, most: true, got: q.HubReads},
		{what: "4. workers: reads per job", want: 0, most: true, got: q.WorkerReads},
	}
}

// Exceeded returns an error that names what exceeds its budget.
func Exceeded(run *scenario.Run) error {
	var faults []string
	for _, t := range budgetOf(run) {
		if !t.met() {
			faults = append(faults, fmt.Sprintf("%s: %.3g, want at most %.3g", t.what, t.got, t.want))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("requests exceed the budget:\n%s", strings.Join(faults, "\n"))
	}
	return nil
}

func memoryTargets(ours *Result) []target {
	var all []target
	if ours.Live != nil {
		all = append(all, target{what: "5. heap per live job", want: 12, most: true, unit: " KB", got: ours.Live.BytesPerJob / 1000})
	}
	if len(ours.Finished) < 2 {
		return all
	}
	without, with := ours.Finished[0], ours.Finished[len(ours.Finished)-1]
	return append(all,
		target{what: fmt.Sprintf("5. heap per finished job, with %d", with.Jobs), want: 1, most: true, unit: " KB", got: with.BytesPerJob / 1000},
		target{what: fmt.Sprintf("5. restart with %d finished jobs until a new one may run", with.Jobs), want: 5, most: true, unit: " s", got: with.First},
		target{
			what: fmt.Sprintf("5. requests to workers for %d finished jobs at a restart", with.Jobs), want: 0, most: true,
			got: float64(with.WorkerRequests - without.WorkerRequests),
		})
}

func rateTargets(ours *Result) []target {
	if ours.Rate == nil {
		return nil
	}
	return []target{
		{what: fmt.Sprintf("6. cores at %.1f jobs/s for %.0f s", ours.Rate.PerSecond, ours.Rate.Seconds), want: 0.5, most: true, got: ours.Rate.Cores},
		{
			what: "6. create → may run p99 of the last tenth, of the first's", want: 2, most: true, unit: " times",
			got: ours.Rate.Last.Start.P99 / ours.Rate.First.Start.P99,
		},
	}
}
