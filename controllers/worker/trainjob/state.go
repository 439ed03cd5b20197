// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"cmp"
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

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/worker/trainjob/health"
	"github.com/trainyard/trainyard/internal/requeue"
)

// state is where a TrainJob is in its life. The first that applies, in this order, is its state.
type state int

const (
	// stateForeign: somebody else manages the job.
	stateForeign state = iota
	// stateDeleting: the job has a deletionTimestamp. The garbage collector does the rest.
	stateDeleting
	// stateStopping: the job has failed by its deadline, and its JobSet still exists.
	stateStopping
	// stateComplete: the job has ended well.
	stateComplete
	// stateFailed: the job has ended badly.
	stateFailed
	// stateBlocked: a JobSet of the job's name belongs to something else.
	stateBlocked
	// stateSuspended: the JobSet is to exist, suspended.
	stateSuspended
	// stateCreated: the JobSet does not exist yet, or is still suspended.
	stateCreated
	// stateRestarting: the JobSet is making its Jobs anew.
	stateRestarting
	// stateRunning: the pods of the trainer, or of any step that is no initializer, are ready.
	stateRunning
	// stateInitializing: the pods of an initializer are ready.
	stateInitializing
	// stateStarting: the JobSet runs, and no step of it is ready.
	stateStarting
)

// String returns the state's name as it stands in logs and metrics.
func (s state) String() string {
	names := [...]string{
		"Foreign", "Deleting", "Stopping", "Complete", "Failed", "Blocked",
		"Suspended", "Created", "Restarting", "Running", "Initializing", "Starting",
	}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("state(%d)", int(s))
	}
	return names[s]
}

// action is what is to be done before the status is written.
type action int

const (
	// actionNone: only the status is written, if it differs.
	actionNone action = iota
	// actionBuild makes or updates the job's objects.
	actionBuild
	// actionDeleteJobSet ends the job's pods.
	actionDeleteJobSet
	// actionDeletePredecessor removes the JobSet of an earlier TrainJob of the same name, should nobody else.
	actionDeletePredecessor
	// actionDeleteTrainJob removes a job whose time after its end is over.
	actionDeleteTrainJob
)

// String returns the action's name as it stands in logs.
func (a action) String() string {
	return [...]string{"None", "Build", "DeleteJobSet", "DeletePredecessor", "DeleteTrainJob"}[a]
}

// observation is what one pass has observed.
type observation struct {
	trainJob *trainer.TrainJob
	// jobSet has the TrainJob's name. It need not be the TrainJob's. nil: there is none.
	jobSet *jobsetv1alpha2.JobSet
	// reported is the status that the runtime framework derives from the TrainJob's own JobSet. nil: it has none.
	reported *trainer.TrainJobStatus
	// held says why a job without a JobSet must not get one now. Empty: it may.
	held string
	// health is what its pods say, while the TrainJob's own JobSet is meant to run.
	health health.Input
	// lastTrouble is what the pods had when there was one last, or empty. Pods that failed may be gone by now.
	lastTrouble health.Trouble
	// runtimeKinds are the kinds of runtime that exist, as "Kind.group".
	runtimeKinds []string
}

// ownsJobSet says whether this very TrainJob, not a namesake, controls the JobSet.
func (f observation) ownsJobSet() bool {
	return f.jobSet != nil && metav1.IsControlledBy(f.jobSet, f.trainJob)
}

// rules are the options that a decision depends on.
type rules struct {
	// extendedConditions adds ResourcesCreated, Started and Stalled to the three conditions of the Kubeflow Trainer.
	extendedConditions bool
	// limits of what counts as trouble with pods.
	limits health.Limits
}

// decision is what is to be done about a TrainJob.
type decision struct {
	state  state
	action action
	// status that the TrainJob is to have, provided that the action succeeds.
	status trainer.TrainJobStatus
	// trouble with the pods, if there is any.
	trouble *health.Trouble
	// failure says why the job fails with this decision, as far as its pods show it. Empty if it does not.
	failure string
	// recheck is how long to wait if nothing happens before. 0: until something happens.
	recheck time.Duration
}

// decide says where a TrainJob is, what is to be done and what its status is to be. It depends on its arguments only.
func decide(f observation, r rules, now time.Time) decision {
	job := f.trainJob
	status := job.Status.DeepCopy()
	switch {
	case trainjobutil.IsManagedByExternalController(job):
		return decision{state: stateForeign, status: *status}
	case !job.DeletionTimestamp.IsZero():
		return decision{state: stateDeleting, status: *status}
	case hasEnded(status):
		return decideEnded(f, now)
	}
	setSuspended(status, isSuspended(job), now)
	takeReported(status, f.reported)
	deadline, limited := deadlineOf(job, status)
	switch {
	case !slices.Contains(f.runtimeKinds, runtimeKind(job)):
		setFailed(status, trainer.TrainJobRuntimeNotSupportedReason, unsupportedMessage(f), now)
	case hasEnded(status):
		// The JobSet says so, and that goes before what the clock says.
	case limited && !now.Before(deadline):
		setFailed(status, trainer.TrainJobDeadlineExceededReason, constants.TrainJobDeadlineExceededMessage, now)
	}
	if hasEnded(status) {
		return decideEnding(f, r, status, now)
	}
	d := decideLive(f, r, now)
	if limited {
		d.recheck = requeue.Sooner(d.recheck, deadline.Sub(now))
	}
	if r.extendedConditions {
		setLiveConditions(status, f, d, now)
	}
	d.status = *status
	return d
}

// decideEnded is about a job whose status says that it is over. The status does not change any more.
func decideEnded(f observation, now time.Time) decision {
	d := decision{state: endState(&f.trainJob.Status), status: f.trainJob.Status}
	if failedByDeadline(f.trainJob) && f.ownsJobSet() {
		d.state = stateStopping
		if f.jobSet.DeletionTimestamp.IsZero() {
			d.action = actionDeleteJobSet
		}
		return d
	}
	if expiry, limited := expiryOf(f.trainJob); limited && !now.Before(expiry) {
		d.action = actionDeleteTrainJob
	} else if limited {
		d.recheck = expiry.Sub(now)
	}
	return d
}

// decideEnding is about a job whose status is now to say that it is over. What follows from that is done once the status says so.
func decideEnding(f observation, r rules, status *trainer.TrainJobStatus, now time.Time) decision {
	d := decision{state: endState(status)}
	if d.state == stateFailed {
		d.failure = endOf(status).Message
		if cause := cmp.Or(health.Cause(f.health.Pods), f.lastTrouble.Message); cause != "" {
			d.failure += ": " + cause
		}
	}
	if r.extendedConditions {
		setEndConditions(status, f, d, now)
	}
	d.status = *status
	return d
}

// decideLive is about a job that is to go on.
func decideLive(f observation, r rules, now time.Time) decision {
	d := decision{state: liveState(f)}
	switch d.state {
	case stateBlocked:
		d.recheck = waitTold
		if isPredecessors(f.jobSet, f.trainJob) && f.jobSet.DeletionTimestamp.IsZero() {
			d.action, d.recheck = actionDeletePredecessor, leftoverTime
		}
		return d
	case stateSuspended, stateCreated:
	default:
		d.trouble, d.recheck = health.Diagnose(f.health, r.limits, now)
		if d.trouble == nil && len(f.health.Pods) == 0 && f.lastTrouble.Reason != "" {
			d.trouble = &f.lastTrouble // That the pods are gone does not mean that it is over.
		}
	}
	// A JobSet that is going is made anew when it is gone; what is applied to it before would go with it.
	if f.held == "" && (f.jobSet == nil || f.jobSet.DeletionTimestamp.IsZero()) {
		d.action = actionBuild
	}
	return d
}

// liveState returns the state of a job that is to go on.
func liveState(f observation) state {
	switch {
	case f.jobSet != nil && !f.ownsJobSet():
		return stateBlocked
	case isSuspended(f.trainJob):
		return stateSuspended
	case f.jobSet == nil || !f.jobSet.DeletionTimestamp.IsZero() || ptr.Deref(f.jobSet.Spec.Suspend, false):
		return stateCreated
	case meta.IsStatusConditionTrue(f.jobSet.Status.Conditions, string(jobsetv1alpha2.JobSetRestarting)):
		return stateRestarting
	}
	result := stateStarting
	for _, step := range f.steps() {
		switch {
		case step.State != v1alpha1.StepRunning:
		case !isInitializer(step):
			return stateRunning
		default:
			result = stateInitializing
		}
	}
	return result
}

// steps of the job, as its JobSet reports them.
func (f observation) steps() []v1alpha1.Step {
	if f.reported == nil {
		return nil
	}
	return trainjobs.Steps(f.reported.JobsStatus)
}

func isInitializer(step v1alpha1.Step) bool {
	return step.Name == v1alpha1.StepDatasetInitializer || step.Name == v1alpha1.StepModelInitializer
}

// resting says whether a TrainJob's own fields suffice to know that there is nothing to do for it, now or later.
func resting(job *trainer.TrainJob) bool {
	if trainjobutil.IsManagedByExternalController(job) || !job.DeletionTimestamp.IsZero() {
		return true
	}
	_, expires := expiryOf(job)
	return hasEnded(&job.Status) && !failedByDeadline(job) && !expires
}

func isSuspended(job *trainer.TrainJob) bool {
	return ptr.Deref(job.Spec.Suspend, false)
}

// endOf returns the condition that says that a job is over, Complete or Failed, or nil.
func endOf(status *trainer.TrainJobStatus) *metav1.Condition {
	for _, end := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if c := meta.FindStatusCondition(status.Conditions, end); c != nil && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

func hasEnded(status *trainer.TrainJobStatus) bool {
	return endOf(status) != nil
}

func endState(status *trainer.TrainJobStatus) state {
	if endOf(status).Type == trainer.TrainJobComplete {
		return stateComplete
	}
	return stateFailed
}

// runtimeKind returns the kind of runtime that a TrainJob refers to, in the form of observation.runtimeKinds.
func runtimeKind(job *trainer.TrainJob) string {
	return trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
}

func unsupportedMessage(f observation) string {
	kinds := slices.Sorted(slices.Values(f.runtimeKinds))
	return fmt.Sprintf("runtimeRef has the unsupported kind %q; supported are: %s", runtimeKind(f.trainJob), strings.Join(kinds, ", "))
}
