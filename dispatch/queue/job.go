// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// defaultReserveAfter is that of policies which say nothing.
const defaultReserveAfter = 2 * time.Hour

// Job is a job that waits.
type Job struct {
	dispatch.Job
	// Class names the jobs for which the same decision holds, whoever is asked about: those of equal demand, pin and
	// exclusions under the same policy. Priority need not be in it.
	Class string
	// Policies of the hub.
	Policies []dispatch.Policy
	// Created is when the TrainJob was created. Among jobs of equal priority the oldest is the first.
	Created time.Time
	// Since is when it began to wait. Its reservation counts from there.
	Since time.Time
	// Attempt is the number of the placement that is sought, and Circumstances sum up what a worker that refuses it may
	// have against it. They are for the Fleet.
	Attempt       int32
	Circumstances string
}

// Key is namespace and name.
func (j *Job) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Name}
}

// before is the order of the waiting list.
func before(a, b *Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

// entry is a job on the waiting list.
type entry struct {
	Job
	class       *class
	reservation *reservation
	// timed: it is among those that will be due for a reservation.
	timed bool
}

// isBefore: a is looked at before b.
func (e *entry) isBefore(other *entry) bool { return before(&e.Job, &other.Job) < 0 }

func inOrder(a, b *entry) int { return before(&a.Job, &b.Job) }

// due is when it may have a reservation.
func (e *entry) due() time.Time { return e.Since.Add(e.class.rules.reserveAfter) }

// rules are what the policy of a job says about waiting.
type rules struct {
	policy       string // Empty: there is none.
	strict       bool
	preempts     bool
	reserveAfter time.Duration
	// erratic: the policy has an expression, which a worker may pass because it has less free than before.
	erratic bool
	// compares: the score of a worker depends on others.
	compares bool
}

func rulesOf(job *Job) rules {
	r := rules{reserveAfter: defaultReserveAfter}
	policy, _, err := dispatch.SelectPolicy(job.Policies, job.Job)
	if err != nil || policy == nil {
		return r
	}
	r.policy = policy.Name
	r.strict = policy.Spec.Queueing == v1alpha1.StrictFIFO
	r.preempts = policy.Spec.Preemption == v1alpha1.PreemptLowerPriority
	if after := policy.Spec.ReserveAfter; after != nil {
		r.reserveAfter = after.Duration
	}
	r.erratic = policy.Expression != nil
	r.compares = slices.ContainsFunc(policy.Spec.Scoring, func(s v1alpha1.Score) bool { return s.Name == v1alpha1.ScorePrice })
	return r
}
