// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Fleet is the workers that are decided on. It is asked by one Pass at a time, and changes during a Pass by Assign and
// Evict only. It is asked often: Workers after each placement, and Empty whenever a worker that is held has changed.
type Fleet interface {
	// Workers returns all workers as they are now, during a Pass in the same order. Each has a Revision, which changes
	// whenever anything of the worker changes, also what Empty and Occupancy say of it. The slice is the Fleet's: the
	// queue writes to it during a decision and puts back what was there, and does not keep it.
	Workers() []dispatch.Worker
	// Assign takes the demand of a job that has been placed off what its worker has free.
	Assign(job *Job, decision dispatch.Decision)
	// Empty returns the nodes of a worker as they would be if no job ran there, the same ones as long as they are. It
	// is nil for one of which nothing is known.
	Empty(worker v1alpha1.ClusterName) *dispatch.Nodes
	// Occupancy returns what runs on a worker.
	Occupancy(worker v1alpha1.ClusterName) dispatch.Occupancy
	// Evict notes that jobs are to be stopped to make room for a job.
	Evict(preemption dispatch.Preemption, job *Job)
	// Evicting returns the worker on which jobs are being stopped to make room for a job, empty if there is none.
	Evicting(job types.UID) v1alpha1.ClusterName
}
