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
	"github.com/trainyard/trainyard/internal/health"
	"github.com/trainyard/trainyard/internal/requeue"
)

// state is where a TrainJob is in its life: the first state in this order that applies.
type state int

const (
	// stateForeign: another controller manages the job.
	stateForeign state = iota
	// stateDeleting: the job has a deletionTimestamp. The garbage collector does the rest.
	stateDeleting
	// stateStopping: the job has failed by its deadline, and its JobSet still exists.
	stateStopping
	stateComplete
	stateFailed
	// stateBlocked: a JobSet with the job's name has another owner.
	stateBlocked
	// stateSuspended: the JobSet must exist and be suspended.
	stateSuspended
	// stateCreated: the JobSet does not exist yet, or is still suspended.
	stateCreated
	// stateRestarting: the JobSet recreates its Jobs.
	stateRestarting
	// stateRunning: the pods of a step that is no initializer are ready.
	stateRunning
	// stateInitializing: the pods of an initializer are ready.
	stateInitializing
	// stateStarting: the JobSet is not suspended, and no step is ready.
	stateStarting
)

// String returns the state's name in logs and metrics.
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

// action is what the controller does before it writes the status.
type action int

const (
	// actionNone: the controller only writes the status, if it changed.
	actionNone action = iota
	// actionBuild makes or updates the job's objects.
	actionBuild
	// actionDeleteJobSet ends the job's pods.
	actionDeleteJobSet
	// actionDeletePredecessor deletes an earlier TrainJob's JobSet that was not garbage-collected.
	actionDeletePredecessor
	// actionDeleteTrainJob deletes a job whose TTL is over.
	actionDeleteTrainJob
)

// String returns the action's name in logs.
func (a action) String() string {
	return [...]string{"None", "Build", "DeleteJobSet", "DeletePredecessor", "DeleteTrainJob"}[a]
}

type observation struct {
	trainJob *trainer.TrainJob
	// jobSet has the TrainJob's name. The TrainJob need not own it. nil: there is no such JobSet.
	jobSet *jobsetv1alpha2.JobSet
	// reported is the status that the runtime framework derives from the TrainJob's own JobSet. nil: it has no JobSet.
	reported *trainer.TrainJobStatus
	// held says why a job without a JobSet must not get one now. Empty: it may get one.
	held string
	// health is what the job's pods show, while the TrainJob's own JobSet is meant to run.
	health health.Input
	// lastTrouble is the last known trouble of the job, or empty. Failed pods may be deleted by now.
	lastTrouble health.Trouble
	// runtimeKinds are the kinds of runtime that exist, as "Kind.group".
	runtimeKinds []string
}

// ownsJobSet says whether this TrainJob, by its UID, controls the JobSet.
func (f observation) ownsJobSet() bool {
	return f.jobSet != nil && metav1.IsControlledBy(f.jobSet, f.trainJob)
}

// rules are the options that a decision depends on.
type rules struct {
	// extendedConditions adds ResourcesCreated, Started and Stalled to the three conditions of the Kubeflow Trainer.
	extendedConditions bool
	// limits say what counts as trouble with pods.
	limits health.Limits
}

type decision struct {
	state  state
	action action
	// status is the TrainJob's new status, if the action succeeds.
	status trainer.TrainJobStatus
	// trouble is the trouble with the pods. nil: none.
	trouble *health.Trouble
	// failure says why the job fails with this decision, as far as its pods show it. Empty: the job does not fail now.
	failure string
	// recheck is when to look again if no event comes before. 0: only at an event.
	recheck time.Duration
}

// decide returns a TrainJob's state, action and new status. It depends on its arguments only.
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
		// The JobSet says that the job has ended. This counts more than the deadline.
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

// takeReported copies into status only what comes from the JobSet. The trainer module decides what a JobSet means for its
// job: see framework.status.
func takeReported(status, reported *trainer.TrainJobStatus) {
	if reported == nil {
		return
	}
	for _, end := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if c := meta.FindStatusCondition(reported.Conditions, end); c != nil {
			meta.SetStatusCondition(&status.Conditions, *c)
		}
	}
	// A recreated JobSet has no job statuses for a moment. The last ones stay: the CRD has MinProperties=1.
	if len(reported.JobsStatus) > 0 {
		status.JobsStatus = reported.JobsStatus
	}
}

// decideEnded decides about a job whose status says that it has ended. The status never changes any more.
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

// decideEnding decides about a job that ends in this pass. What follows from the end comes after the status says it.
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

func decideLive(f observation, r rules, now time.Time) decision {
	d := decision{state: liveState(f)}
	switch d.state {
	case stateBlocked:
		d.recheck = waitReported
		if isPredecessors(f.jobSet, f.trainJob) && f.jobSet.DeletionTimestamp.IsZero() {
			d.action, d.recheck = actionDeletePredecessor, leftoverTime
		}
		return d
	case stateSuspended, stateCreated:
	default:
		d.trouble, d.recheck = health.Diagnose(f.health, r.limits, now)
		if d.trouble == nil && len(f.health.Pods) == 0 && f.lastTrouble.Reason != "" {
			d.trouble = &f.lastTrouble // The trouble is not over just because the pods are gone.
		}
		if d.trouble != nil && d.trouble.Reason == health.NoPodReady && d.recheck == 0 {
			d.recheck = warningLife(f.health.Warning) // An Event says more.
		}
	}
	// A JobSet that is being deleted is recreated later. An object that is applied now would be deleted with it.
	if f.held == "" && (f.jobSet == nil || f.jobSet.DeletionTimestamp.IsZero()) {
		d.action = actionBuild
	}
	return d
}

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

// steps returns the steps of the job, as its JobSet reports them.
func (f observation) steps() []v1alpha1.Step {
	if f.reported == nil {
		return nil
	}
	return trainjobs.Steps(f.reported.JobsStatus)
}

func isInitializer(step v1alpha1.Step) bool {
	return step.Name == v1alpha1.StepDatasetInitializer || step.Name == v1alpha1.StepModelInitializer
}

// resting says whether the TrainJob's own fields show that there is nothing to do for it, now or later.
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

// endOf returns the condition that says that a job has ended, Complete or Failed, or nil.
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

// runtimeKind returns the kind of the TrainJob's runtime, in the form of observation.runtimeKinds.
func runtimeKind(job *trainer.TrainJob) string {
	return trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
}

func unsupportedMessage(f observation) string {
	kinds := slices.Sorted(slices.Values(f.runtimeKinds))
	return fmt.Sprintf("runtimeRef has the unsupported kind %q; supported are: %s", runtimeKind(f.trainJob), strings.Join(kinds, ", "))
}
