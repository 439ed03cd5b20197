// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Ending is a row of the table of outcomes: what follows from the outcome of an attempt.
type Ending struct {
	Outcome v1alpha1.Outcome
	// Finishes is true if the job has ended too.
	Finishes bool
	// Until is the last state, in the order of states, in which an attempt may end so without an eviction. None: only an
	// eviction leads to this outcome.
	Until State
	// Evictor is who asks for evictions with this reason. Empty: there are none.
	Evictor Writer
	// KeepsRoom is true if placement is asked for room elsewhere while the eviction goes on, so that nobody else gets it.
	KeepsRoom bool
	// Moves is true if the job counts against the maxConcurrentMoves of its policy until it has its next copy.
	Moves bool
	// Refusal is true if the end speaks against the worker, which is asked again after a back-off. Lost and drained
	// workers take no jobs anyway, and a copy that had to make room or was suspended says nothing about the next copy.
	Refusal bool
	// Pardoned is true if the worker is asked again at once after the first time.
	Pardoned bool
	// NeverRan is true if the copy did not run, so that the worker has no images and data of the job.
	NeverRan bool
	// Free is true if the attempt has cost nothing, although nobody saw its times.
	Free bool
	// Intended is true if the Event of the end is no warning.
	Intended bool
	// Event is the format of that Event, of worker and message. Empty: the message alone.
	Event string
}

const (
	stopped = "Stopped on worker %s: %s"
	noCopy  = "No copy was made on worker %s: %s"
)

// endings has every outcome, in the order of the enum of the API. A test checks that.
var endings = []Ending{
	{Outcome: v1alpha1.OutcomeComplete, Finishes: true},
	{Outcome: v1alpha1.OutcomeFailed, Finishes: true},
	{
		Outcome: v1alpha1.OutcomeRejected, Until: Placed, Evictor: mirror, KeepsRoom: true, Refusal: true, NeverRan: true, Free: true,
		Event: "Worker %s refused the TrainJob: %s",
	},
	{Outcome: v1alpha1.OutcomeNameConflict, Until: Evicting, Refusal: true, NeverRan: true, Free: true},
	{Outcome: v1alpha1.OutcomeCopyDeleted, Until: Copied, Refusal: true, Pardoned: true},
	{Outcome: v1alpha1.OutcomeCopyChanged, Evictor: mirror, KeepsRoom: true, Refusal: true, Event: stopped},
	{
		Outcome: v1alpha1.OutcomeJobChanged, Until: Placed, NeverRan: true,
		Intended: true, Event: noCopy,
	},
	{Outcome: v1alpha1.OutcomeRuntimeChanged, Until: Placed, Refusal: true, Pardoned: true, NeverRan: true, Event: noCopy},
	{Outcome: v1alpha1.OutcomePreempted, Evictor: placement, Intended: true, Event: stopped},
	{Outcome: v1alpha1.OutcomeDrained, Evictor: moves, KeepsRoom: true, Moves: true, Intended: true, Event: stopped},
	{Outcome: v1alpha1.OutcomeAdmissionTimeout, Evictor: moves, KeepsRoom: true, Refusal: true, NeverRan: true, Event: stopped},
	{Outcome: v1alpha1.OutcomeSuspended, Evictor: placement, Intended: true, Event: stopped},
	{Outcome: v1alpha1.OutcomeManagedByMultiKueue, Evictor: placement, KeepsRoom: true},
	{Outcome: v1alpha1.OutcomeWorkerLost, Until: Lost},
}

// Refusers returns the workers that have refused the job, or of which its Dispatch says that they would, sorted by name.
func Refusers(d *v1alpha1.Dispatch) []v1alpha1.ClusterName {
	var workers []v1alpha1.ClusterName
	for i := range d.Status.Refusals {
		workers = append(workers, d.Status.Refusals[i].Cluster)
	}
	for i := range d.Status.Explanation {
		if line := &d.Status.Explanation[i]; EndingOf(v1alpha1.Outcome(line.Reason)).Refusal {
			workers = append(workers, line.Cluster)
		}
	}
	slices.Sort(workers)
	return slices.Compact(workers)
}

// Endings returns the table of outcomes.
func Endings() []Ending { return slices.Clone(endings) }

// EndingOf returns the row of an outcome, or of the reason of an eviction. An outcome of a later manager has no
// consequences.
func EndingOf[T v1alpha1.Outcome | v1alpha1.EvictionReason](outcome T) Ending {
	for i := range endings {
		if endings[i].Outcome == v1alpha1.Outcome(outcome) {
			return endings[i]
		}
	}
	return Ending{Outcome: v1alpha1.Outcome(outcome)}
}
