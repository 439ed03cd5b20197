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

// state is what to do about a job of a worker.
type state int

const (
	// left: do nothing. The job is being deleted, is suspended or has ended, has left the worker, or is another job.
	left state = iota
	// away: the worker does not answer. Failover decides about the job.
	away
	// settled: the job stays.
	settled
	// leaving: the job is being evicted. The room for it elsewhere is kept.
	leaving
	// displaced: the worker is being drained. The job leaves as soon as there is room for it elsewhere.
	displaced
	// overdue: the worker has not let the job run in time.
	overdue
	// held: the worker does not let the job run at present.
	held
)

// String names the state, for logs and tests.
func (s state) String() string {
	return [...]string{"left", "away", "settled", "leaving", "displaced", "overdue", "held"}[s]
}

// home is the state of the worker.
type home int

const (
	// open: the worker may keep its jobs.
	open home = iota
	// draining: the jobs are to leave the worker.
	draining
	// silent: the worker does not answer, or may not be used.
	silent
)

type observation struct {
	dispatch *v1alpha1.Dispatch
	// job is nil if it does not exist, or does not matter.
	job  *unstructured.Unstructured
	home home
	// written: this process has written the eviction, but the cache does not show it yet.
	written bool
	// policy is the job's policy, nil if there is none.
	policy *v1alpha1.DispatchPolicy
	// patience says since when the worker has kept the job from running.
	patience patience
}

func decide(f observation, now time.Time) state {
	d := f.dispatch
	if !record.StateOf(d).Live() {
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
	case f.timeout() == 0:
		return settled
	case !now.Before(f.patience.due(f.timeout())):
		return overdue
	default:
		return held
	}
}

// timeout is how long the worker may keep the job from running; 0: for ever.
func (f *observation) timeout() time.Duration { return f.policy.Rules().AdmissionTimeout.Duration }
