// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// isNomination is true for a promise to a job without an attempt: somebody else brings the job to the worker. Its key
// may be the key of a TrainJob, and what happens to that TrainJob does not end the promise.
func (a *assignment) isNomination() bool { return a.promised && a.attempt == 0 }

// Occupy takes the room for a job. Somebody else has brought the job to the worker, or will do so soon. Job.Attempt
// must be 0. The room is taken even if it is not free, and until ReleasePromise, or until Elsewhere finds another
// worker. What the worker's inventory counts of the job's pods already is not taken twice. Occupy with the same worker
// does nothing.
func (d *Decider) Occupy(job *queue.Job, worker v1alpha1.ClusterName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.jobs.promisedTo(job.UID)
	if p != nil && p.worker == worker {
		return
	}
	helps := d.fleet.unpromise(job.UID)
	d.fleet.promise(&assignment{
		key: job.Key(), uid: job.UID, worker: worker, podSets: job.PodSets, priority: job.Priority, promised: true,
	})
	// The pods of the job may be counted already.
	d.fleet.outdate(worker)
	d.changedIf(helps)
}
