// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Nearest is Decide with an answer for one worker: the chosen worker with reason Fits, or the worker nearest to taking
// the job, with what it lacks. Of the workers that lack room, the nearest is the one with places for the most pods.
// Without workers, or if none may take the job, the answer names no worker and has the decision's reason and message.
func Nearest(job Job, policies []Policy, workers []Worker) v1alpha1.ClusterExplanation {
	decision := Decide(job, policies, workers)
	if decision.Cluster != "" {
		return v1alpha1.ClusterExplanation{
			Cluster: decision.Cluster, Reason: v1alpha1.ReasonFits, Message: decision.Message, Domain: decision.Domain,
		}
	}
	f := newFilters(job, policies)
	if f.denial != nil || len(workers) == 0 {
		return v1alpha1.ClusterExplanation{Reason: decision.Reason, Message: decision.Message}
	}
	workers = seenBy(&job, workers)
	var nearest unfit
	var at v1alpha1.ClusterName
	defer Blame(&at)
	for i := range workers {
		at = workers[i].Name
		c := unfit{worker: &workers[i], result: f.check(&workers[i])}
		if c.result == insufficient {
			c.places = c.worker.PlacesFor(&job)
		}
		if nearest.worker == nil || c.isNearer(nearest) {
			nearest = c
		}
	}
	return v1alpha1.ClusterExplanation{
		Cluster: nearest.worker.Name,
		Reason:  f.reason(nearest.worker, nearest.result),
		Message: Cut(f.message(nearest.worker, nearest.result)),
		Domain:  f.domainOn(nearest.worker),
	}
}

type unfit struct {
	worker *Worker
	result filterResult
	// places is how many of the job's pods have a place there, if the result is insufficient.
	places int64
}

func (c unfit) isNearer(other unfit) bool {
	return cmp.Or(cmp.Compare(c.result, other.result), cmp.Compare(other.places, c.places),
		cmp.Compare(c.worker.Name, other.worker.Name)) < 0
}
