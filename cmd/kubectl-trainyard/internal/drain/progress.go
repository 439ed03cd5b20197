// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

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
