// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Holders returns the jobs before a job in line for which a worker is held, sorted. Jobs of a class with the same holders have the
// same Explain.
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

// HeldFor returns the job before a job for which a worker is held. Nil: there is none.
func (q *Queue) HeldFor(worker v1alpha1.ClusterName, job *Job) *Job {
	r := q.reservations[worker]
	if r == nil || r.entry.UID == job.UID || before(&r.entry.Job, job) > 0 {
		return nil
	}
	return &r.entry.Job
}

// Job returns a job in line, nil if it is not.
func (q *Queue) Job(key types.NamespacedName) *Job {
	if e := q.entries[key]; e != nil {
		return &e.Job
	}
	return nil
}

// Sight is the workers as a job in line sees them: without what is held for jobs before it. It may be kept.
type Sight struct {
	workers []dispatch.Worker
	held    map[v1alpha1.ClusterName]bool
}

// Sight returns what a job sees at present. One that is not in line sees all.
func (q *Queue) Sight(key types.NamespacedName, fleet Fleet) Sight {
	s := Sight{workers: slices.Clone(fleet.Workers()), held: map[v1alpha1.ClusterName]bool{}}
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

// Explain is dispatch.Explain, and says of workers that are held for jobs before this one that they are.
func (s Sight) Explain(job *Job) []v1alpha1.ClusterExplanation {
	lines := dispatch.Explain(job.Job, job.Policies, s.workers)
	for i := range lines {
		if s.held[lines[i].Cluster] && lines[i].Reason == v1alpha1.ReasonInsufficientResources {
			lines[i].Reason = v1alpha1.ReasonReserved // Without its name: it may be of another namespace, which is not everybody's to know.
			lines[i].Message = dispatch.Cut("held for a job before this one; beside that it " + lines[i].Message)
		}
	}
	return lines
}

// Explain is what the Sight of a job explains.
func (q *Queue) Explain(job *Job, fleet Fleet) []v1alpha1.ClusterExplanation {
	return q.Sight(job.Key(), fleet).Explain(job)
}
