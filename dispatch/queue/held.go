// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Holders returns the jobs with a reservation that are before a waiting job, sorted. Jobs of a class with the same
// holders get the same explanation.
func (q *Queue) Holders(key types.NamespacedName) []types.UID {
	e := q.entries[key]
	if e == nil {
		return nil
	}
	var holders []types.UID
	for _, r := range q.reservations {
		if r.isBefore(e) {
			holders = append(holders, r.entry.UID)
		}
	}
	slices.Sort(holders)
	return holders
}

// HeldFor returns the job before a job for which a worker is held. nil: there is none.
func (q *Queue) HeldFor(worker v1alpha1.ClusterName, job *Job) *Job {
	r := q.reservations[worker]
	if r == nil || r.entry.UID == job.UID || before(&r.entry.Job, job) > 0 {
		return nil
	}
	return &r.entry.Job
}

// Job returns a waiting job, or nil if it is not on the waiting list.
func (q *Queue) Job(key types.NamespacedName) *Job {
	if e := q.entries[key]; e != nil {
		return &e.Job
	}
	return nil
}

// Snapshot is the workers' capacity for one waiting job, without what is held for jobs before it. It does not change.
type Snapshot struct {
	workers []dispatch.Worker
	held    map[v1alpha1.ClusterName]bool
}

// Snapshot returns the workers' present capacity for a job. It leaves out nothing for a job not on the waiting list.
func (q *Queue) Snapshot(key types.NamespacedName, fleet Fleet) Snapshot {
	s := Snapshot{workers: slices.Clone(fleet.Workers()), held: map[v1alpha1.ClusterName]bool{}}
	e := q.entries[key]
	if e == nil {
		return s
	}
	for i := range s.workers {
		if r := q.reservations[s.workers[i].Name]; r.isBefore(e) {
			s.held[r.worker] = true
			s.workers[i].Nodes, s.workers[i].Revision = r.nodes(&s.workers[i], fleet, q.now), 0
		}
	}
	return s
}

// Explain is dispatch.Explain. It also says which workers are held for jobs before this one.
func (s Snapshot) Explain(job *Job) []v1alpha1.ClusterExplanation {
	lines := dispatch.Explain(job.Job, job.Policies, s.workers)
	for i := range lines {
		if s.held[lines[i].Cluster] && lines[i].Reason == v1alpha1.ReasonInsufficientResources {
			// The message does not name the job: not every user may know of a job of another namespace.
			lines[i].Reason = v1alpha1.ReasonReserved
			lines[i].Message = dispatch.Cut("a part is held for a job before this one; the rest " + lines[i].Message)
		}
	}
	return lines
}

// Explain explains the Snapshot of a job.
func (q *Queue) Explain(job *Job, fleet Fleet) []v1alpha1.ClusterExplanation {
	return q.Snapshot(job.Key(), fleet).Explain(job)
}
