// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/trainyard/trainyard/api/trainjobs"
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
	// concluded: the job has ended although its attempt was given up, or because the job was given up, and its Dispatch does
	// not say so yet.
	concluded
	// failed: the job was given up, and its TrainJob is not Failed yet.
	failed
	// orphaned: a Dispatch waits for a job that is gone or has ended. The Dispatch is deleted.
	orphaned
	// occupied: the Dispatch is of an earlier job, or somebody has deleted it. It must be gone first, which wakes us.
	occupied
	// suspended: the job is not to be placed while spec.suspend is true.
	suspended
	// silent: the job is unplaced, and nothing is written about it before Kueue has shown more.
	silent
	// written: the job is unplaced by the cache, but its grant has been written. The cache will show it.
	written
	// granted: a pass has given the job a worker, and the Dispatch does not say so yet.
	granted
	// unplaced: a worker has to be found, or it has to be said why there is none.
	unplaced
)

// String names the state, for logs and tests.
func (s state) String() string {
	return [...]string{
		"settled", "held", "evicted", "concluded", "failed", "orphaned", "occupied", "suspended", "silent", "written",
		"granted", "unplaced",
	}[s]
}

// next says what is to be done for what has been observed. managedBy is the value that this manager owns.
func next(managedBy string, seen *observation) state {
	what := classify(managedBy, seen)
	if what != unplaced {
		return what
	}
	silence, _ := seen.awaitsKueue()
	switch {
	case seen.placed && seen.grant == nil:
		return written
	case silence:
		return silent
	case seen.grant != nil && seen.obstacle() == nil: // Otherwise the grant is taken back.
		return granted
	}
	return unplaced
}

// classify is next as far as a glance tells: all jobs without a worker are unplaced.
func classify(managedBy string, seen *observation) state {
	recorded := record.StateOf(seen.dispatch)
	ofAnother := seen.dispatch != nil && seen.job != nil && seen.dispatch.Spec.TrainJob.UID != seen.job.GetUID()
	switch {
	case seen.job == nil, seen.job.GetDeletionTimestamp() != nil, trainjobs.Terminal(seen.job) != nil:
		// A copy that was given up has ended the job, or the job was given up.
		if (recorded == record.Ended || recorded == record.GivenUp) && record.JobStays(seen.dispatch, seen.job) {
			return concluded
		}
		if recorded == record.Waiting || recorded == record.GivenUp {
			return orphaned
		}
		return settled
	case trainjobs.ManagedBy(seen.job) != managedBy:
		return settled
	case ofAnother && (recorded == record.Waiting || recorded == record.GivenUp):
		return orphaned
	case ofAnother, recorded == record.Leaving:
		return occupied
	case recorded.Live():
		return seen.classifyLive()
	case recorded == record.Finished:
		return settled
	case recorded == record.GivenUp:
		return failed
	case trainjobs.Suspended(seen.job) && !seen.stands():
		return suspended
	default:
		return unplaced
	}
}

// classifyLive is classify for a job that has a worker.
func (seen *observation) classifyLive() state {
	switch {
	case seen.dispatch.Spec.Eviction != nil:
		return settled
	case seen.eviction != nil:
		return evicted
	case seen.kueue.Standing == kueue.QuotaReserved:
		return held
	default:
		return settled
	}
}
