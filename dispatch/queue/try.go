// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Try says, as dispatch.Nearest does, where a job would be placed if it came to the waiting list now, on any worker but
// one. It places nothing. The job does not get what is held for jobs before it. A job that StrictFIFO would hold back
// is Queued.
func (q *Queue) Try(job *Job, fleet Fleet, except v1alpha1.ClusterName) v1alpha1.ClusterExplanation {
	if l := q.strict[rulesOf(job).policy]; l.holds(nil, job) {
		decision := l.queued()
		return v1alpha1.ClusterExplanation{Reason: decision.Reason, Message: decision.Message}
	}
	workers := slices.DeleteFunc(slices.Clone(fleet.Workers()), func(w dispatch.Worker) bool { return w.Name == except })
	for i := range workers {
		if q.HeldFor(workers[i].Name, job) != nil {
			workers[i].Nodes, workers[i].Revision = q.reservations[workers[i].Name].nodes(&workers[i], fleet, q.now), 0
		}
	}
	return dispatch.Nearest(job.Job, job.Policies, workers)
}

// FitsEmpty is true if a waiting job would be placed on a worker if no other job ran there.
func (q *Queue) FitsEmpty(key types.NamespacedName, fleet Fleet) bool {
	job := q.Job(key)
	if job == nil {
		return false
	}
	erratic := rulesOf(job).erratic
	return slices.ContainsFunc(fleet.Workers(), func(w dispatch.Worker) bool {
		return fitsEmpty(w, fleet, erratic, func(w dispatch.Worker) bool {
			return dispatch.Decide(job.Job, job.Policies, []dispatch.Worker{w}).Cluster != ""
		})
	})
}

// Excluding returns the waiting jobs that exclude a worker, in any order. It looks at one job of each class.
func (q *Queue) Excluding(worker v1alpha1.ClusterName) []types.NamespacedName {
	var keys []types.NamespacedName
	for _, c := range q.classes {
		if _, is := c.head().Excluded[worker]; !is {
			continue
		}
		for _, e := range c.entries {
			keys = append(keys, e.Key())
		}
	}
	return keys
}
