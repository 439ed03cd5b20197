// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
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

// HeldFor returns the job before a job for which a worker is held. Nil: there is none. A Fleet can ask it in Assign, for
// dispatch.Nodes.ReserveBehind.
func (q *Queue) HeldFor(worker v1alpha1.ClusterName, job *Job) *Job {
	r := q.reservations[worker]
	if r == nil || r.entry.UID == job.UID || before(&r.entry.Job, job) > 0 {
		return nil
	}
	return &r.entry.Job
}

// Sight is the workers as a job in line sees them: without what is held for jobs before it. It may be kept.
type Sight struct {
	workers []dispatch.Worker
	held    map[v1alpha1.ClusterName]types.NamespacedName
}

// Sight returns what a job sees at present. One that is not in line sees all.
func (q *Queue) Sight(key types.NamespacedName, fleet Fleet) Sight {
	s := Sight{workers: slices.Clone(fleet.Workers()), held: map[v1alpha1.ClusterName]types.NamespacedName{}}
	e := q.entries[key]
	if e == nil {
		return s
	}
	for i := range s.workers {
		if r := q.reservations[s.workers[i].Name]; r.isBefore(e) {
			s.held[r.worker] = r.entry.Key()
			s.workers[i].Nodes, s.workers[i].Revision = r.nodes(&s.workers[i], fleet), 0
		}
	}
	return s
}

// Explain is dispatch.Explain, and says of workers that are held for jobs before this one that they are.
func (s Sight) Explain(job *Job) []v1alpha1.ClusterExplanation {
	lines := dispatch.Explain(job.Job, job.Policies, s.workers)
	for i := range lines {
		holder, held := s.held[lines[i].Cluster]
		if held && lines[i].Reason == v1alpha1.ReasonInsufficientResources {
			lines[i].Reason = v1alpha1.ReasonReserved
			lines[i].Message = dispatch.Cut(fmt.Sprintf("held for TrainJob %s, which is before this one; beside that it %s", holder, lines[i].Message))
		}
	}
	return lines
}

// Explain is what the Sight of a job explains.
func (q *Queue) Explain(job *Job, fleet Fleet) []v1alpha1.ClusterExplanation {
	return q.Sight(job.Key(), fleet).Explain(job)
}
