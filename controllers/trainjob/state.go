// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// state is where a TrainJob stands, from what was observed of it. The first that applies, in this order, is its state.
type state int

const (
	// stateForeign: somebody else manages the job.
	stateForeign state = iota
	// stateDeleting: the job has a deletionTimestamp. The garbage collector does the rest.
	stateDeleting
	// stateStopping: the job has failed by its deadline, and its JobSet still exists.
	stateStopping
	// stateFinished: the status says Complete or Failed.
	stateFinished
	// stateUnsupported: the job refers to a kind of runtime that does not exist. The status is to say Failed.
	stateUnsupported
	// stateEnding: the JobSet has ended. The status is to say so.
	stateEnding
	// stateExpired: the deadline has passed. The status is to say Failed.
	stateExpired
	// stateBlocked: a JobSet of the job's name belongs to something else.
	stateBlocked
	// stateSuspended: the JobSet is to exist, suspended.
	stateSuspended
	// statePending: there is no JobSet yet.
	statePending
	// stateResuming: the JobSet is still suspended, the job no longer is.
	stateResuming
	// stateRunning: the JobSet runs.
	stateRunning
)

// String returns the state's name as it stands in logs.
func (s state) String() string {
	names := [...]string{
		"Foreign", "Deleting", "Stopping", "Finished", "Unsupported", "Ending", "Expired",
		"Blocked", "Suspended", "Pending", "Resuming", "Running",
	}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("state(%d)", int(s))
	}
	return names[s]
}

// facts is what one pass has observed.
type facts struct {
	trainJob *trainer.TrainJob
	// jobSet has the TrainJob's name. It need not be the TrainJob's. nil: there is none.
	jobSet *jobsetv1alpha2.JobSet
	// reported is the status that the runtime framework derives from the TrainJob's own JobSet. nil: it has none.
	reported *trainer.TrainJobStatus
	// runtimeKinds are the kinds of runtime that exist, as "Kind.group".
	runtimeKinds []string
}

// ownsJobSet says whether this very TrainJob, not a namesake, controls the JobSet.
func (f facts) ownsJobSet() bool {
	return f.jobSet != nil && metav1.IsControlledBy(f.jobSet, f.trainJob)
}

// decision is what is to be done about a TrainJob.
type decision struct {
	state state
	// status that the TrainJob is to have.
	status trainer.TrainJobStatus
	// recheck is how long to wait if nothing happens before. 0: until something happens.
	recheck time.Duration
}

// decide says where a TrainJob stands and what its status is to be. It depends on its arguments only.
func decide(f facts, now time.Time) decision {
	job := f.trainJob
	if s, ok := settled(f); ok {
		return decision{state: s, status: job.Status}
	}
	status := job.Status.DeepCopy()
	setSuspended(status, isSuspended(job), now)
	takeReported(status, f.reported)
	deadline, limited := deadlineOf(job, status)

	d := decision{state: stateWithin(f, limited && !now.Before(deadline))}
	switch d.state {
	case stateUnsupported:
		setFailed(status, trainer.TrainJobRuntimeNotSupportedReason, unsupportedMessage(f), now)
	case stateExpired:
		setFailed(status, trainer.TrainJobDeadlineExceededReason, constants.TrainJobDeadlineExceededMessage, now)
	case stateBlocked, stateSuspended, statePending, stateResuming, stateRunning:
		if limited {
			d.recheck = deadline.Sub(now)
		}
	case stateForeign, stateDeleting, stateStopping, stateFinished, stateEnding:
	}
	d.status = *status
	return d
}

// settled returns the state of a TrainJob whose status is not to change any more.
func settled(f facts) (state, bool) {
	job := f.trainJob
	switch {
	case trainjobutil.IsManagedByExternalController(job):
		return stateForeign, true
	case !job.DeletionTimestamp.IsZero():
		return stateDeleting, true
	case trainjobutil.IsTrainJobFinished(job) && failedByDeadline(job) && f.ownsJobSet():
		return stateStopping, true
	case trainjobutil.IsTrainJobFinished(job):
		return stateFinished, true
	}
	return 0, false
}

// stateWithin returns the state of a TrainJob that is not settled.
func stateWithin(f facts, expired bool) state {
	switch {
	case !slices.Contains(f.runtimeKinds, runtimeKind(f.trainJob)):
		return stateUnsupported
	case f.reported != nil && hasEnded(f.reported):
		return stateEnding
	case expired:
		return stateExpired
	case f.jobSet != nil && !f.ownsJobSet():
		return stateBlocked
	case isSuspended(f.trainJob):
		return stateSuspended
	case f.jobSet == nil:
		return statePending
	case ptr.Deref(f.jobSet.Spec.Suspend, false):
		return stateResuming
	default:
		return stateRunning
	}
}

// resting says whether a TrainJob's own fields suffice to know that there is nothing to do for it.
func resting(job *trainer.TrainJob) bool {
	return trainjobutil.IsManagedByExternalController(job) || !job.DeletionTimestamp.IsZero() ||
		trainjobutil.IsTrainJobFinished(job) && !failedByDeadline(job)
}

// deadlineOf returns when a TrainJob has to be over, if it has a deadline and its time runs: since the last resumption, else
// since the creation. The time stops while the job is suspended.
func deadlineOf(job *trainer.TrainJob, status *trainer.TrainJobStatus) (time.Time, bool) {
	if job.Spec.ActiveDeadlineSeconds == 0 || isSuspended(job) {
		return time.Time{}, false
	}
	start := job.CreationTimestamp.Time
	if c := meta.FindStatusCondition(status.Conditions, trainer.TrainJobSuspended); c != nil && c.Status == metav1.ConditionFalse {
		start = c.LastTransitionTime.Time
	}
	return start.Add(time.Duration(job.Spec.ActiveDeadlineSeconds) * time.Second), true
}

func isSuspended(job *trainer.TrainJob) bool {
	return ptr.Deref(job.Spec.Suspend, false)
}

func failedByDeadline(job *trainer.TrainJob) bool {
	c := meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobFailed)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == trainer.TrainJobDeadlineExceededReason
}

func hasEnded(status *trainer.TrainJobStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, trainer.TrainJobComplete) ||
		meta.IsStatusConditionTrue(status.Conditions, trainer.TrainJobFailed)
}

// runtimeKind returns the kind of runtime that a TrainJob refers to, in the form of facts.runtimeKinds.
func runtimeKind(job *trainer.TrainJob) string {
	return trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
}

func unsupportedMessage(f facts) string {
	kinds := slices.Sorted(slices.Values(f.runtimeKinds))
	return fmt.Sprintf("runtimeRef has the unsupported kind %q; supported are: %s", runtimeKind(f.trainJob), strings.Join(kinds, ", "))
}
