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

// Fleet is the workers that a Pass decides about. One Pass at a time calls it. During a Pass only Assign and Evict
// change what it has free. A Pass calls Workers after each placement, and Empty whenever a worker with a reservation
// has changed.
type Fleet interface {
	// Workers returns all workers as they are now, in the same order during a Pass. The Revision of a worker changes
	// whenever the worker changes, also in what Empty and Occupancy return. The slice belongs to the Fleet. The queue
	// writes to it during a decision, restores it, and does not keep it.
	Workers() []dispatch.Worker
	// Assign takes the demand of a placed job off the free amounts of its worker.
	Assign(job *Job, decision dispatch.Decision)
	// Empty returns the nodes of a worker as if no job ran there, the same pointer while they do not change. It is nil for
	// an unknown worker.
	Empty(worker v1alpha1.ClusterName) *dispatch.Nodes
	// Occupancy returns what runs on a worker.
	Occupancy(worker v1alpha1.ClusterName) dispatch.Occupancy
	// MayEvict says whether jobs of a worker may be stopped for a job. It is false while the Fleet has a reason to expect
	// that they would be stopped in vain. The worker changes when it is true again.
	MayEvict(job *Job, worker v1alpha1.ClusterName) bool
	// Evict records that jobs have to be stopped to make room for a job. It returns false if their worker has to say
	// first that it takes the job. Then nobody is stopped, and the worker changes when it has said so.
	Evict(preemption dispatch.Preemption, job *Job) bool
	// Evicting returns the worker on which jobs are being stopped to make room for a job, or "".
	Evicting(job types.UID) v1alpha1.ClusterName
	// Lose records a panic over a worker. From then on Workers shows the worker as not Ready, and as changed.
	Lose(panicked *dispatch.WorkerPanic)
}

// fitsEmpty says whether a job would be placed on a worker if no job ran there. fits says whether it would be placed on
// the worker that it is given. The expression of an erratic policy may be false because the worker has too many jobs
// now, or because it has none, so fitsEmpty tries both numbers of jobs. The expression sees nodeGroups as they are.
func fitsEmpty(w dispatch.Worker, fleet Fleet, erratic bool, fits func(dispatch.Worker) bool) bool {
	w.Nodes, w.Revision = fleet.Empty(w.Name), 0
	if fits(w) {
		return true
	}
	w.Assigned, w.Queued = 0, 0
	return erratic && fits(w)
}
