// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"errors"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/internal/health"
)

// Reasons of Events on a TrainJob, beside the reasons of package health and ReasonRecovered.
const (
	// ReasonRuntimeNotFound: the runtime that the TrainJob refers to does not exist.
	ReasonRuntimeNotFound = "RuntimeNotFound"
	// ReasonBuildFailed: the runtime framework could not make objects of the TrainJob and its runtime.
	ReasonBuildFailed = "BuildFailed"
	// ReasonApplyFailed: the API server has refused one of the objects.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonJobSetConflict: a JobSet of the TrainJob's name belongs to something else.
	ReasonJobSetConflict = "JobSetConflict"
	// ReasonJobSetRebuilt: the controller deleted a JobSet that had not started. Only a new JobSet can have a change.
	ReasonJobSetRebuilt = "JobSetRebuilt"
	// ReasonRestarted: the JobSet has restarted.
	ReasonRestarted = "Restarted"
	// ReasonWaiting: objects of an earlier JobSet or TrainJob of the same name still exist after waitReported.
	ReasonWaiting = "Waiting"
	// ReasonHeld: the TrainJob may not get a JobSet now (Options.Gate).
	ReasonHeld = "Held"
	// ReasonFailed: the TrainJob has failed.
	ReasonFailed = "Failed"
)

// problem is an error that the TrainJob's owner should read.
type problem struct {
	reason string
	// action is what was tried. client-go merges Events with the same reason and action into a series and keeps only the
	// first message. So action names the kind of the applied object.
	action string
	err    error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

const (
	// maxNote is the API server's limit for an Event's note.
	maxNote = 1024
	// maxConditionMessage is far below the API server's 32 Ki: people read a status, and many caches keep it.
	maxConditionMessage = 2048
	// waitReported is how long a job waits for a deletion that others do before an Event reports the wait.
	waitReported = time.Minute
	// repeatAfter is when an Event repeats a problem that has not changed. An Event is kept for an hour by default.
	repeatAfter = 30 * time.Minute
)

// announcer reports to the owners of TrainJobs, by Events and metrics.
type announcer struct {
	recorder events.EventRecorder
	clock    clock.PassiveClock
}

// report sends news to the TrainJob's owner: problems with its objects, restarts, trouble with its pods.
func (a *announcer) report(f observation, d decision, err error, past *knownJob) {
	var p *problem
	switch {
	case d.state == stateBlocked && isPredecessors(f.jobSet, f.trainJob): // This is normal and ends by itself.
		a.waiting(f.trainJob, past, conflictMessage(f.jobSet))
	case d.state == stateBlocked:
		a.jobSetTaken(f.trainJob, f.jobSet, past)
	case f.held != "":
		a.held(f.trainJob, past, f.held)
	case isWaiting(err):
		a.waiting(f.trainJob, past, err.Error())
	case errors.As(err, &p) && !isPassing(err):
		a.problem(f.trainJob, p, past)
	case err == nil:
		past.waitingSince, past.reported = time.Time{}, "" // If the problem comes back, it is reported again.
	}
	if !f.ownsJobSet() {
		return
	}
	if restarts := restartsOf(f.jobSet); restarts != past.restarts {
		if past.restarts >= 0 && restarts > past.restarts {
			restartsTotal.Add(float64(restarts - past.restarts))
			a.restarted(f.trainJob, f.jobSet)
		}
		past.restarts = restarts
	}
	a.reportTrouble(f.trainJob, d, past)
}

// reportTrouble reports that trouble has begun or changed, or that it is over for a job that still runs.
func (a *announcer) reportTrouble(job *trainer.TrainJob, d decision, past *knownJob) {
	if !isLive(d.state) {
		return // Until the status says so, the last trouble counts as the cause.
	}
	trouble := ptr.Deref(d.trouble, health.Trouble{})
	before := past.trouble
	past.trouble = trouble
	if trouble == before {
		return
	}
	if trouble.Reason != "" && trouble.Reason != before.Reason {
		stallsTotal.WithLabelValues(trouble.Reason).Inc()
	}
	if trouble.Reason != "" || runs(d.state) {
		a.trouble(job, d.trouble)
	}
}

// problem reports a problem to the TrainJob's owner, unless the last Event reported the same.
func (a *announcer) problem(job *trainer.TrainJob, p *problem, past *knownJob) {
	a.warnOnce(job, past, p.reason, p.action, p.Error())
}

// jobSetTaken reports that the TrainJob waits for the deletion of a JobSet that has its name and another owner.
func (a *announcer) jobSetTaken(job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet, past *knownJob) {
	a.warnOnce(job, past, ReasonJobSetConflict, "Wait", conflictMessage(jobSet))
}

// waiting reports what the job waits for, once it has waited for waitReported.
func (a *announcer) waiting(job *trainer.TrainJob, past *knownJob, what string) {
	now := a.clock.Now()
	if past.waitingSince.IsZero() {
		past.waitingSince = now
	}
	if now.Sub(past.waitingSince) >= waitReported {
		a.warnOnce(job, past, ReasonWaiting, "Wait", what)
	}
}

func (a *announcer) held(job *trainer.TrainJob, past *knownJob, why string) {
	a.warnOnce(job, past, ReasonHeld, "Hold", "nothing is created for it: "+why)
}

func (a *announcer) warnOnce(job *trainer.TrainJob, past *knownJob, reason, act, note string) {
	note = trainjobs.Cut(note, maxNote)
	now := a.clock.Now()
	if text := reason + "\n" + note; past.reported != text || now.Sub(past.reportedAt) >= repeatAfter {
		past.reported, past.reportedAt = text, now
		a.recorder.Eventf(job, nil, corev1.EventTypeWarning, reason, act, "%s", note)
	}
}

func (a *announcer) rebuilt(job *trainer.TrainJob) {
	a.recorder.Eventf(job, nil, corev1.EventTypeNormal, ReasonJobSetRebuilt, "Rebuild",
		"the JobSet had not started yet and is created again, because JobSet does not allow the changes of the TrainJob on an existing one")
}

func (a *announcer) restarted(job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) {
	why := "a Job of it was restarted by its failure policy"
	if c := meta.FindStatusCondition(jobSet.Status.Conditions, string(jobsetv1alpha2.JobSetRestarting)); c != nil &&
		c.Status == metav1.ConditionTrue {
		why = c.Message
	}
	restarts := restartsOf(jobSet)
	// Each restart has its own action: client-go keeps only the first note of Events with the same reason and action.
	a.recorder.Eventf(job, nil, corev1.EventTypeWarning, ReasonRestarted, fmt.Sprintf("Restart%d", restarts), "restart %d: %s",
		restarts, trainjobs.Cut(why, maxNote/2))
}

// trouble reports what keeps the job from making progress, or that the trouble is over.
func (a *announcer) trouble(job *trainer.TrainJob, t *health.Trouble) {
	if t == nil {
		a.recorder.Eventf(job, nil, corev1.EventTypeNormal, ReasonRecovered, "Watch", "no trouble of the job is known any more")
		return
	}
	a.recorder.Eventf(job, nil, corev1.EventTypeWarning, t.Reason, "Watch", "%s", trainjobs.Cut(t.Message, maxNote))
}

func (a *announcer) failed(job *trainer.TrainJob, message string) {
	a.recorder.Eventf(job, nil, corev1.EventTypeWarning, ReasonFailed, "Finish", "%s", trainjobs.Cut(message, maxNote))
}

func conflictMessage(jobSet *jobsetv1alpha2.JobSet) string {
	note := "waiting for JobSet " + klog.KObj(jobSet).String() + " to be deleted: it exists and is not this TrainJob's"
	if owner := metav1.GetControllerOf(jobSet); owner != nil {
		note += ", but that of " + owner.Kind + " " + owner.Name
	}
	return note
}
