// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Job is a job that waits.
type Job struct {
	dispatch.Job
	// Class is equal for jobs about which the decision is the same: jobs of equal demand, pin and exclusions under the
	// same policy. It need not contain the priority.
	Class string
	// Policies of the hub.
	Policies []dispatch.Policy
	// Created is when the TrainJob was created. Among jobs of equal priority the oldest is first.
	Created time.Time
	// Since is when the job began to wait. The time until its reservation counts from there.
	Since time.Time
	// Attempt numbers the awaited attempt. Circumstances sums up why a worker may reject it. Both are for the Fleet.
	Attempt       int32
	Circumstances string
	// Counted says from what the demand was derived, for the record.
	Counted *v1alpha1.Counted
	// Dependencies are the objects that the job's worker gets from the hub, for the record.
	Dependencies []v1alpha1.Dependency
}

// Key is namespace and name.
func (j *Job) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Name}
}

// Common returns what jobs of one class have in common, for the decision and beyond: the job without the fields that
// may differ. A new field of dispatch.Job tells classes apart, unless it is cleared here.
func (j *Job) Common() dispatch.Job {
	common := j.Job
	common.UID, common.Name, common.Priority = "", "", 0
	// What counts of these depends on the policy and the workers, and the class says it.
	common.Namespace, common.Labels, common.Annotations, common.NamespaceLabels = "", nil, nil, nil
	common.WorkerQueue, common.QueuedOnHub, common.Nominated = "", false, false
	return common
}

// before compares two jobs by the order of the waiting list.
func before(a, b *Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

// entry is a job on the waiting list.
type entry struct {
	Job
	class       *class
	reservation *reservation
	// timed: the job is in timers.
	timed bool
}

// isBefore says whether e is before other on the waiting list.
func (e *entry) isBefore(other *entry) bool { return before(&e.Job, &other.Job) < 0 }

func inOrder(a, b *entry) int { return before(&a.Job, &b.Job) }

// due is when the job may have a reservation.
func (e *entry) due() time.Time { return e.Since.Add(e.class.rules.reserveAfter) }

// rules are what the policy of a job says about waiting.
type rules struct {
	policy       string // Empty: there is none.
	strict       bool
	preempts     bool
	reserveAfter time.Duration
	// erratic: the policy has an expression, which may be true for a worker because less is free there than before.
	erratic bool
	// compares: the score of a worker depends on other workers.
	compares bool
}

func rulesOf(job *Job) rules {
	policy, _, _ := dispatch.SelectPolicy(job.Policies, job.Job) // Nil after an error.
	spec := policy.Rules()
	r := rules{
		strict:       spec.Queueing == v1alpha1.StrictFIFO,
		preempts:     spec.Preemption == v1alpha1.PreemptLowerPriority,
		reserveAfter: spec.ReserveAfter.Duration,
	}
	if policy == nil {
		return r
	}
	r.policy, r.erratic, r.compares = policy.Name, policy.Expression != nil, policy.Compares()
	return r
}
