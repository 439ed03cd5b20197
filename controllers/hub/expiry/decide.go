// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// maxWait is how long a job waits at most until it is looked at again. The queue keeps the key of a job that somebody
// deletes for so long, and not for the years that a job's time may have.
const maxWait = 24 * time.Hour

// What has said how long a job stays.
const (
	byAnnotation = "annotation"
	byPolicy     = "policy"
)

// observation is what is known of one key. job and dispatch are nil if one of them is missing.
type observation struct {
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	// policy is the job's DispatchPolicy, nil if there is none or if the annotation counts.
	policy *v1alpha1.DispatchPolicy
}

// state says what becomes of a job.
type state int

const (
	// stays: the job is not ours, has not ended, has no time, or is being deleted already.
	stays state = iota
	// unreadable: the annotation of the finished job is no number of seconds. The job stays.
	unreadable
	// waits: the time is not over.
	waits
	// over: the job has to be deleted.
	over
)

// String names the state.
func (s state) String() string { return [...]string{"stays", "unreadable", "waits", "over"}[s] }

type decision struct {
	state state
	// after is when to look again at a job that waits.
	after time.Duration
	// by says who has set the time: byAnnotation or byPolicy.
	by string
	// fault says what is wrong with an unreadable annotation.
	fault error
}

// decide says what becomes of a job. managedBy is the value of spec.managedBy of our jobs.
func (f observation) decide(managedBy string, now time.Time) decision {
	if f.job == nil || f.job.GetDeletionTimestamp() != nil || trainjobs.ManagedBy(f.job) != managedBy ||
		f.dispatch.Spec.TrainJob.UID != f.job.GetUID() || record.AttemptOf(f.dispatch) != record.Finished {
		return decision{state: stays}
	}
	var ttl time.Duration
	by := byAnnotation
	switch value, annotated := ttlAnnotation(f.job); {
	case annotated:
		var err error
		if ttl, _, err = trainjobs.TTL(map[string]string{v1alpha1.AnnotationTTL: value}); err != nil {
			return decision{state: unreadable, fault: err}
		}
	case f.policy != nil && f.policy.Spec.TTLSecondsAfterFinished != nil:
		ttl, by = time.Duration(*f.policy.Spec.TTLSecondsAfterFinished)*time.Second, byPolicy
	default:
		return decision{state: stays}
	}
	if after := f.end().Add(ttl).Sub(now); after > 0 {
		return decision{state: waits, after: min(after, maxWait), by: by}
	}
	return decision{state: over, by: by}
}

// end is when the Dispatch became Finished, by the hub's clock, or the zero time.
func (f observation) end() time.Time {
	finished := meta.FindStatusCondition(f.dispatch.Status.Conditions, v1alpha1.DispatchFinished)
	if finished == nil {
		return time.Time{}
	}
	return finished.LastTransitionTime.Time
}

// ttlAnnotation returns the TTL that a job's annotation has. It does not copy all annotations.
func ttlAnnotation(job *unstructured.Unstructured) (value string, ok bool) {
	value, ok, _ = unstructured.NestedString(job.Object, "metadata", "annotations", v1alpha1.AnnotationTTL)
	return value, ok
}
