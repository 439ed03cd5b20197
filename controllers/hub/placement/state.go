// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch/record"
)

// state is what is to be done about a TrainJob.
type state int

const (
	// settled: nothing is to be decided. The job is not ours, is being deleted, has ended, or is placed.
	settled state = iota
	// held: the job is placed and still suspended. Kueue resumes the job when the admission check says that there is room.
	held
	// evicted: the job has to leave its worker, and its Dispatch does not say so yet.
	evicted
	// concluded: the job has ended although its attempt was given up, and its Dispatch does not say so yet.
	concluded
	// orphaned: a Dispatch waits for a job that is gone or has ended. The Dispatch is deleted.
	orphaned
	// occupied: the Dispatch is of an earlier job, or somebody has deleted it. It must be gone first, which wakes us.
	occupied
	// suspended: the job is not to be placed while spec.suspend is true.
	suspended
	// unplaced: a worker has to be found.
	unplaced
)

// String names the state, for logs and tests.
func (s state) String() string {
	return [...]string{"settled", "held", "evicted", "concluded", "orphaned", "occupied", "suspended", "unplaced"}[s]
}

// observation is what has been observed of a key. The first three may be nil.
type observation struct {
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	// eviction is what is to end the job's attempt: an eviction that the decider has decided, or the suspension of the
	// job.
	eviction *v1alpha1.Eviction
	// kueue is what a Kueue on the hub is to the job. If MultiKueue dispatches it, eviction says so.
	kueue kueue.Answer
	// past is empty until place or Elsewhere reads it.
	past past
}

// classify says what is to be done for what has been observed. managedBy is the value that this manager owns.
func classify(managedBy string, f observation) state {
	recorded := record.StateOf(f.dispatch)
	ofAnother := f.dispatch != nil && f.job != nil && f.dispatch.Spec.TrainJob.UID != f.job.GetUID()
	switch {
	case f.job == nil, f.job.GetDeletionTimestamp() != nil, trainjobs.Terminal(f.job) != nil:
		if recorded == record.Waiting {
			return orphaned
		}
		if recorded == record.Ended && record.JobStays(f.dispatch, f.job) { // A copy that was given up has ended the job.
			return concluded
		}
		return settled
	case trainjobs.ManagedBy(f.job) != managedBy:
		return settled
	case ofAnother && recorded == record.Waiting:
		return orphaned
	case ofAnother, recorded == record.Leaving:
		return occupied
	case recorded.Live():
		return f.classifyLive()
	case recorded == record.Finished:
		return settled
	case trainjobs.Suspended(f.job) && !f.stands():
		return suspended
	default:
		return unplaced
	}
}

// classifyLive is classify for a job that has a worker.
func (f *observation) classifyLive() state {
	switch {
	case f.dispatch.Spec.Eviction != nil:
		return settled
	case f.eviction != nil:
		return evicted
	case f.kueue.Standing == kueue.QuotaReserved:
		return held
	default:
		return settled
	}
}

// stands is true for a suspended job that may have a worker nevertheless: it has quota and waits for room, or it is not
// known yet whether it has.
func (f *observation) stands() bool {
	return f.kueue.Standing == kueue.QuotaReserved || f.kueue.Standing == kueue.Unknown
}

// suspends is true if the suspension of the job ends its attempt. A job that stands has no copy yet.
func (f *observation) suspends() bool {
	return f.job != nil && trainjobs.Suspended(f.job) && (!f.stands() || f.dispatch != nil && f.dispatch.WasCopied())
}
