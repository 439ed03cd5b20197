// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"errors"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Conditions that Options.ExtendedConditions adds to the three of the Kubeflow Trainer. observedGeneration is set.
const (
	// ConditionResourcesCreated: what the TrainJob needs to run, above all its JobSet, exists as the TrainJob wants it.
	// False: the reason and the API server's message say why not.
	ConditionResourcesCreated = "ResourcesCreated"
	// ConditionStarted: a step of the job has begun since the job was created, last resumed or last restarted. True: the
	// reason is the current step. False: the reason is what the job waits for.
	ConditionStarted = "Started"
	// ConditionStalled: the job is meant to run, and something keeps it from making progress. A job that had no trouble
	// has no such condition. True: the reason comes from package health.
	ConditionStalled = "Stalled"
)

// Reasons of ConditionResourcesCreated. False has the reason of a Warning Event (ReasonBuildFailed, ReasonApplyFailed,
// ReasonRuntimeNotFound, ReasonJobSetConflict) or ReasonRuntimeNotSupported.
const (
	// ReasonResourcesCreated: all objects exist.
	ReasonResourcesCreated = "ResourcesCreated"
	// ReasonRuntimeNotSupported: the TrainJob refers to a kind of runtime that does not exist.
	ReasonRuntimeNotSupported = "RuntimeNotSupported"
)

// Reasons of ConditionStarted.
const (
	// ReasonDatasetInitializer: the job loads the dataset.
	ReasonDatasetInitializer = "DatasetInitializer"
	// ReasonModelInitializer: the job loads the model.
	ReasonModelInitializer = "ModelInitializer"
	// ReasonTrainer: the job trains, or runs any other step.
	ReasonTrainer = "Trainer"
	// ReasonSuspended: the job waits to be resumed.
	ReasonSuspended = "Suspended"
	// ReasonWaitingForResources: the job waits for its JobSet.
	ReasonWaitingForResources = "WaitingForResources"
	// ReasonWaitingForPods: the job waits for pods to become ready.
	ReasonWaitingForPods = "WaitingForPods"
	// ReasonRestarting: the JobSet recreates its Jobs.
	ReasonRestarting = "Restarting"
)

// Reasons of ConditionStalled when it is False.
const (
	// ReasonRecovered: the trouble is over. An Event has this reason too.
	ReasonRecovered = "Recovered"
	// ReasonNotRunning: the job is not meant to run now.
	ReasonNotRunning = "NotRunning"
)

// setCondition sets a condition. The condition's time never goes back, also if the machine's clock does.
func setCondition(status *trainer.TrainJobStatus, c metav1.Condition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	if old := meta.FindStatusCondition(status.Conditions, c.Type); old != nil && c.LastTransitionTime.Before(&old.LastTransitionTime) {
		c.LastTransitionTime = old.LastTransitionTime
	}
	meta.SetStatusCondition(&status.Conditions, c)
}

// setSuspended records whether the job is suspended. False is recorded only if the job was suspended before.
func setSuspended(status *trainer.TrainJobStatus, suspended bool, now time.Time) {
	c := metav1.Condition{Type: trainer.TrainJobSuspended}
	switch {
	case suspended:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, trainer.TrainJobSuspendedReason, constants.TrainJobSuspendedMessage
	case meta.IsStatusConditionTrue(status.Conditions, trainer.TrainJobSuspended):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, trainer.TrainJobResumedReason, constants.TrainJobResumedMessage
	default:
		return
	}
	setCondition(status, c, now)
}

func setFailed(status *trainer.TrainJobStatus, reason, message string, now time.Time) {
	setCondition(status, metav1.Condition{
		Type: trainer.TrainJobFailed, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	}, now)
}

// setLiveConditions sets the extended conditions of a live job, except ResourcesCreated, which depends on the action.
func setLiveConditions(status *trainer.TrainJobStatus, f observation, d decision, now time.Time) {
	setStarted(status, f, d.state, now)
	setStalled(status, f.trainJob, d, now)
}

// setEndConditions sets the extended conditions of a job that has just ended. Started keeps its last value.
func setEndConditions(status *trainer.TrainJobStatus, f observation, d decision, now time.Time) {
	setStalled(status, f.trainJob, d, now)
	if d.state != stateFailed {
		return
	}
	failed := meta.FindStatusCondition(status.Conditions, trainer.TrainJobFailed)
	if failed.Reason == trainer.TrainJobRuntimeNotSupportedReason {
		setCondition(status, metav1.Condition{
			Type: ConditionResourcesCreated, Status: metav1.ConditionFalse, Reason: ReasonRuntimeNotSupported,
			Message: failed.Message, ObservedGeneration: f.trainJob.Generation,
		}, now)
	}
	// setCondition above may have moved the conditions, so the condition is looked up again.
	meta.FindStatusCondition(status.Conditions, trainer.TrainJobFailed).Message = trainjobs.Cut(d.failure, maxConditionMessage)
}

// setStarted sets True from the first step that runs until the job is suspended or restarts, even if a pod is unready.
func setStarted(status *trainer.TrainJobStatus, f observation, s state, now time.Time) {
	c := metav1.Condition{Type: ConditionStarted, Status: metav1.ConditionFalse, ObservedGeneration: f.trainJob.Generation}
	switch s {
	case stateSuspended:
		c.Reason, c.Message = ReasonSuspended, "the TrainJob is suspended"
	case stateRestarting:
		c.Reason, c.Message = ReasonRestarting, "the JobSet is creating its Jobs again"
	case stateRunning, stateInitializing, stateStarting:
		step := currentStep(f.steps())
		if s == stateStarting && !meta.IsStatusConditionTrue(status.Conditions, ConditionStarted) {
			c.Reason, c.Message = ReasonWaitingForPods, "waiting for the pods of "+step+" to be ready"
			break
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, stepReason(step), "the current step is "+step
	default:
		c.Reason, c.Message = ReasonWaitingForResources, "waiting for the JobSet"
	}
	setCondition(status, c, now)
}

// currentStep is the first step that runs or, if none runs, the first step that has not succeeded.
func currentStep(steps []v1alpha1.Step) string {
	for _, wanted := range []v1alpha1.StepState{v1alpha1.StepRunning, v1alpha1.StepFailed, v1alpha1.StepWaiting} {
		for _, step := range steps {
			if step.State == wanted {
				return step.Name
			}
		}
	}
	return v1alpha1.StepTrainer
}

func stepReason(step string) string {
	switch step {
	case v1alpha1.StepDatasetInitializer:
		return ReasonDatasetInitializer
	case v1alpha1.StepModelInitializer:
		return ReasonModelInitializer
	default:
		return ReasonTrainer
	}
}

// setStalled records trouble, and the end of earlier trouble.
func setStalled(status *trainer.TrainJobStatus, job *trainer.TrainJob, d decision, now time.Time) {
	c := metav1.Condition{Type: ConditionStalled, ObservedGeneration: job.Generation}
	switch {
	case d.trouble != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, d.trouble.Reason, trainjobs.Cut(d.trouble.Message, maxConditionMessage)
	case meta.FindStatusCondition(status.Conditions, ConditionStalled) == nil:
		return
	case runs(d.state):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonRecovered, "no trouble of the job is known any more"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonNotRunning, "the job does not run"
	}
	setCondition(status, c, now)
}

// runs says whether the JobSet of a job in this state is to run.
func runs(s state) bool {
	return s >= stateRestarting
}

// setResourcesCreated records the result of a live job's action. An error that passes by itself (a conflict, objects of
// an earlier TrainJob) changes nothing.
func setResourcesCreated(status *trainer.TrainJobStatus, f observation, s state, err error, now time.Time) {
	c := metav1.Condition{Type: ConditionResourcesCreated, ObservedGeneration: f.trainJob.Generation}
	var p *problem
	switch {
	case s == stateBlocked:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonJobSetConflict, conflictMessage(f.jobSet)
	case errors.As(err, &p) && !isPassing(err):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.reason, trainjobs.Cut(p.Error(), maxConditionMessage)
	case err == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonResourcesCreated, "the JobSet and what it needs exist"
	default:
		return
	}
	setCondition(status, c, now)
}

// deadlineOf returns when a TrainJob must have ended, if it has a deadline and is not suspended. The time counts from
// the last resumption or, if there was none, from the creation.
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

func failedByDeadline(job *trainer.TrainJob) bool {
	end := endOf(&job.Status)
	return end != nil && end.Type == trainer.TrainJobFailed && end.Reason == trainer.TrainJobDeadlineExceededReason
}

// expiryOf returns when the controller deletes a TrainJob that has ended, if the job has a TTL. An unreadable TTL
// counts as none: better keep a job too long than delete it too early. A copy has no TTL, whatever its annotation says:
// its hub deletes it. A hub that has not seen the copy's end would run the job again if the worker deleted it.
func expiryOf(job *trainer.TrainJob) (time.Time, bool) {
	ttl, limited, err := trainjobs.TTL(job.Annotations)
	end := endOf(&job.Status)
	if err != nil || !limited || end == nil || isCopy(job) {
		return time.Time{}, false
	}
	return end.LastTransitionTime.Add(ttl), true
}

// isCopy says whether a hub has made the TrainJob.
func isCopy(job *trainer.TrainJob) bool { return job.Labels[v1alpha1.LabelHub] != "" }

// runningSince is when the JobSet's pods were last meant to start: its last restart, resumption or creation.
func runningSince(jobSet *jobsetv1alpha2.JobSet) time.Time {
	since := jobSet.CreationTimestamp.Time
	for _, kind := range []jobsetv1alpha2.JobSetConditionType{jobsetv1alpha2.JobSetSuspended, jobsetv1alpha2.JobSetRestarting} {
		c := meta.FindStatusCondition(jobSet.Status.Conditions, string(kind))
		if c != nil && c.Status == metav1.ConditionFalse && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// restartsOf counts the restarts of a JobSet and the restarts of single Jobs of it.
func restartsOf(jobSet *jobsetv1alpha2.JobSet) int32 {
	restarts := jobSet.Status.Restarts
	for _, job := range jobSet.Status.ReplicatedJobsStatus {
		for _, n := range job.JobRestarts {
			restarts += n
		}
	}
	return restarts
}
