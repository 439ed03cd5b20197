// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// fate is what happens to a job of a drained worker, in the order of the steps.
type fate int

const (
	// undecided jobs are on the worker, and will be moved later.
	undecided fate = iota
	// stays: the job is on the worker, and cannot move now.
	stays
	// evicting jobs are being stopped.
	evicting
	// deleting jobs are being deleted.
	deleting
	// stopped jobs have no pods on the worker any more, and will be placed again.
	stopped
	// waiting jobs have left the worker, and have no other worker yet.
	waiting
	// moved jobs have another worker.
	moved
	// ended jobs are Complete or Failed.
	ended
	// gone: the job was deleted.
	gone
)

// isHere is true for jobs for which the drain of the worker still waits.
func (f fate) isHere() bool {
	switch f {
	case undecided, stays, evicting, deleting, stopped:
		return true
	case waiting, moved, ended, gone:
	}
	return false
}

// fateOf returns what happens to a job that is or was on the worker. words are for people.
func fateOf(worker v1alpha1.ClusterName, d *v1alpha1.Dispatch) (of fate, words string) {
	state := record.AttemptOf(d)
	switch {
	case state == record.Waiting:
		return waiting, "left, and waits for a worker"
	case record.WasGivenUp(d):
		return ended, "left, and was given up: no worker took it in time"
	case d.Spec.Cluster != worker:
		return moved, fmt.Sprintf("moved to %s", d.Spec.Cluster)
	case state == record.Finished:
		return ended, "ended"
	case state == record.Ended:
		return stopped, "stopped"
	case state == record.Lost:
		return fateOfLost(record.LostCondition(d))
	case d.DeletionTimestamp != nil:
		return deleting, "is being deleted"
	case state == record.Evicting:
		return evicting, because("evicting", d.Spec.Eviction.Message)
	case record.Stays(d):
		return stays, because("stays", meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchEvicting).Message)
	}
	return undecided, "waits for its turn"
}

// fateOfLost is fateOf for a job whose worker does not answer. Such a job moves only if the worker's agent must stop
// its copy.
func fateOfLost(lost *metav1.Condition) (of fate, words string) {
	if lost.Reason == v1alpha1.ReasonFencing {
		return evicting, because("leaves when the worker, which does not answer, must have stopped it", lost.Message)
	}
	return stays, because(fmt.Sprintf("stays, as the worker does not answer (%s)", lost.Reason), lost.Message)
}

// because adds a reason in one line, if there is one.
func because(words, reason string) string {
	if reason = strings.Join(strings.Fields(reason), " "); reason == "" {
		return words
	}
	return words + ": " + reason
}

// onItsWay says how far a job has come that is moving and is not the worker's.
func onItsWay(d *v1alpha1.Dispatch) string {
	switch record.AttemptOf(d) {
	case record.Waiting:
		if placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced); placed != nil {
			return because("has no worker yet", placed.Reason)
		}
		return "has no worker yet"
	case record.Evicting, record.Lost:
		return fmt.Sprintf("is being stopped on %s", d.Spec.Cluster)
	case record.Ended:
		return fmt.Sprintf("has stopped on %s", d.Spec.Cluster)
	default:
		return fmt.Sprintf("has no copy on %s yet", d.Spec.Cluster)
	}
}

// Progress is the progress of a drain.
type Progress struct {
	worker v1alpha1.ClusterName
	jobs   map[types.UID]job
}

// job is what was last reported about a job.
type job struct {
	key   types.NamespacedName
	fate  fate
	words string
	// passing: the job is not the worker's, and holds up the worker's jobs.
	passing bool
}

// NewProgress returns the progress of a drain before the first Look.
func NewProgress(worker v1alpha1.ClusterName) *Progress {
	return &Progress{worker: worker, jobs: map[types.UID]job{}}
}

// Look reads all Dispatches. It returns a line for each job that has changed, sorted by namespace and name: for each job
// of the worker, and, while jobs of the worker wait for their turn, for each job on its way from another drained worker.
func (p *Progress) Look(dispatches []v1alpha1.Dispatch) []string {
	seen, changed := map[types.UID]bool{}, []job(nil)
	queued := slices.ContainsFunc(dispatches, func(d v1alpha1.Dispatch) bool {
		of, _ := fateOf(p.worker, &d)
		return of == undecided
	})
	for i := range dispatches {
		d := &dispatches[i]
		uid := d.Spec.TrainJob.UID
		of, words := fateOf(p.worker, d)
		before, known := p.jobs[uid]
		passing := (!known || before.passing) && !of.isHere() // Nobody has ever seen it there.
		if passing {
			if known && !record.IsMoving(d) {
				delete(p.jobs, uid)
			}
			if !queued || !record.IsMoving(d) {
				seen[uid] = true
				continue
			}
			words = "holds up the others, as many as their policy's maxConcurrentMoves are on their way: it " + onItsWay(d)
		}
		seen[uid] = true
		now := job{key: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, fate: of, words: words, passing: passing}
		if now != before {
			p.jobs[uid], changed = now, append(changed, now)
		}
	}
	for uid, before := range p.jobs {
		if !seen[uid] && before.fate != gone && !before.passing {
			before.fate, before.words = gone, "was deleted"
			p.jobs[uid], changed = before, append(changed, before)
		}
	}
	slices.SortFunc(changed, func(a, b job) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	lines := make([]string, len(changed))
	for i, j := range changed {
		lines[i] = fmt.Sprintf("trainjob %s %s", j.key, j.words)
	}
	return lines
}

// Counts counts the jobs on the worker: jobs that cannot move now, and the other jobs.
func (p *Progress) Counts() (stay, leave int) {
	for j := range maps.Values(p.jobs) {
		switch {
		case j.fate == stays:
			stay++
		case j.fate.isHere():
			leave++
		}
	}
	return stay, leave
}
