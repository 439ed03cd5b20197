// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// state is what is to be done about a job of a worker.
type state int

const (
	// left: the job is not to be moved. It goes, has ended, is suspended, has left its worker already, or is another one.
	left state = iota
	// away: its worker does not answer. What becomes of it is for failover to say.
	away
	// settled: it stays.
	settled
	// leaving: it is being evicted. The room that it is promised elsewhere is kept.
	leaving
	// displaced: the worker is being drained, and the job goes as soon as there is room for it elsewhere.
	displaced
	// overdue: the worker has not let it run in time.
	overdue
	// held: the worker does not let it run at present.
	held
)

// String names the state, for logs and tests.
func (s state) String() string {
	return [...]string{"left", "away", "settled", "leaving", "displaced", "overdue", "held"}[s]
}

// home is how it is with the worker.
type home int

const (
	// open: it may keep its jobs.
	open home = iota
	// draining: it is to lose them.
	draining
	// silent: it does not answer, or may not be used.
	silent
)

// observation is what has been observed of a job.
type observation struct {
	dispatch *v1alpha1.Dispatch
	// job is nil if it is gone, or does not matter.
	job  *unstructured.Unstructured
	home home
	// written: this process has evicted it, which the cache does not show yet.
	written bool
	// policy of the job, nil if there is none.
	policy *v1alpha1.DispatchPolicy
	// patience with the worker.
	patience patience
}

// decide says what is to be done about a job.
func decide(f observation, now time.Time) state {
	d := f.dispatch
	switch record.StateOf(d) {
	case record.Placed, record.Copied, record.Evicting, record.Lost:
	case record.None, record.Waiting, record.Ended, record.Finished, record.Leaving:
		return left
	}
	switch {
	case f.home == silent:
		return away
	case f.home == open && f.patience.seen.IsZero():
		return settled
	case f.job == nil, f.job.GetUID() != d.Spec.TrainJob.UID, f.job.GetDeletionTimestamp() != nil, trainjobs.Terminal(f.job) != nil,
		trainjobs.Suspended(f.job):
		return left
	case d.Spec.Eviction != nil, f.written:
		return leaving
	case f.home == draining:
		return displaced
	case timeout(f.policy) == 0:
		return settled
	case !now.Before(f.patience.due(timeout(f.policy))):
		return overdue
	default:
		return held
	}
}

// timeout is how long a worker may keep a job of a policy from running; 0: for ever.
func timeout(policy *v1alpha1.DispatchPolicy) time.Duration {
	if policy == nil || policy.Spec.AdmissionTimeout == nil {
		return 0
	}
	return policy.Spec.AdmissionTimeout.Duration
}
