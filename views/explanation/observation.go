// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/views/jobs"
)

// Observation is what is known of a job.
type Observation struct {
	Job *unstructured.Unstructured
	// Dispatch is the Dispatch of the job, or nil.
	Dispatch *v1alpha1.Dispatch
	// Place is the job's place in the waiting list, and Length the length of that list. Nil: no place, or not known.
	Place  *jobs.Place
	Length int
	// Policy names the job's DispatchPolicy, as far as it is known. It may be empty.
	Policy string
	// Data is what the function Data says of the job. It may be empty.
	Data string
	// Clusters are the WorkerClusters, as far as the user may read them.
	Clusters []v1alpha1.WorkerCluster
	// Events are the Events about the job. NoEvents says why they could not be read.
	Events   []corev1.Event
	NoEvents error
	Now      time.Time
}

// State is how far the placement of a job is.
type State int

const (
	// Unmanaged jobs belong to another manager.
	Unmanaged State = iota
	// Deleting jobs are being deleted.
	Deleting
	// Suspended jobs are not placed.
	Suspended
	// Unseen jobs have no Dispatch yet.
	Unseen
	// Succeeding jobs have a Dispatch of an earlier job of the same name, which must be deleted first.
	Succeeding
	// Waiting jobs have no worker.
	Waiting
	// Returned jobs have an attempt that has ended before the job. They are placed again.
	Returned
	// Lost jobs have a worker that has not answered for longer than its grace period.
	Lost
	// Evicting jobs are being removed from their worker.
	Evicting
	// Placed jobs have a worker that has reported nothing about them yet.
	Placed
	// Queued jobs have a copy that their worker does not let run yet.
	Queued
	// Running jobs have a copy on their worker.
	Running
	// Ended jobs are Complete or Failed.
	Ended
)

// String returns the state for people.
func (s State) String() string {
	return [...]string{
		"Not managed by Trainyard", "Deleting", "Suspended", "Not seen by Trainyard yet", "Waiting", "Waiting", "Waiting",
		"Lost",
		"Evicting", "Placed", "Queued", "Running", "Ended",
	}[s]
}

// State returns the state of the job.
func (f Observation) State() State {
	d := f.Dispatch
	switch {
	case f.Job.GetDeletionTimestamp() != nil:
		return Deleting
	case trainjobs.Terminal(f.Job) != nil:
		return Ended
	case d == nil:
		return f.stateWithoutDispatch()
	case d.Spec.TrainJob.UID != f.Job.GetUID():
		return Succeeding
	}
	switch record.StateOf(d) {
	case record.Leaving:
		return Succeeding
	case record.Waiting:
		if trainjobs.Suspended(f.Job) && !f.waitsWithQuota() {
			return Suspended
		}
		return Waiting
	case record.GivenUp: // Its TrainJob becomes Failed.
		return Waiting
	case record.Ended:
		return Returned
	case record.Lost:
		return Lost
	case record.Evicting:
		return Evicting
	case record.Copied, record.Finished: // The job was read before it had ended.
		if d.Status.Phase == v1alpha1.PhaseQueued {
			return Queued
		}
		return Running
	case record.None, record.Placed:
	}
	return Placed
}

// waitsWithQuota is true for a suspended job that waits for room nevertheless: the hub's Kueue resumes the job then.
func (f Observation) waitsWithQuota() bool {
	placed := f.condition(v1alpha1.DispatchPlaced)
	return placed != nil && placed.Status == metav1.ConditionFalse && jobs.Waits(f.Dispatch)
}

func (f Observation) stateWithoutDispatch() State {
	switch trainjobs.ManagedBy(f.Job) {
	case v1alpha1.ManagedByMultiKueue, v1alpha1.ManagedByDispatcher:
	default:
		return Unmanaged
	}
	if trainjobs.Suspended(f.Job) {
		return Suspended
	}
	return Unseen
}

// Headline returns the state with the place and the reason, in a few words.
func (f Observation) Headline() string {
	state, d := f.State(), f.Dispatch
	switch state {
	case Ended:
		end := trainjobs.Terminal(f.Job)
		if d != nil && d.Spec.Cluster != "" {
			return fmt.Sprintf("%s on worker %s", end.Type, d.Spec.Cluster)
		}
		if record.WasGivenUp(d) {
			return fmt.Sprintf("%s (%s)", end.Type, v1alpha1.ReasonGivenUp)
		}
		return end.Type
	case Waiting:
		if reason := f.Why(); reason != "" {
			return fmt.Sprintf("%s (%s)", state, reason)
		}
	case Lost:
		return fmt.Sprintf("%s with worker %s (%s)", state, d.Spec.Cluster, f.Why())
	case Evicting:
		return fmt.Sprintf("%s from worker %s (%s)", state, d.Spec.Cluster, f.Why())
	case Running:
		return f.progress()
	case Placed, Queued:
		return fmt.Sprintf("%s on worker %s", state, d.Spec.Cluster)
	case Unmanaged, Deleting, Suspended, Unseen, Succeeding, Returned:
	}
	return state.String()
}

// progress says how far the copy is, and what keeps it from making progress.
func (f Observation) progress() string {
	text := fmt.Sprintf("%s on worker %s", f.Word(), f.Dispatch.Spec.Cluster)
	if trouble := f.Why(); trouble != "" {
		text += fmt.Sprintf(" (%s)", trouble)
	}
	return text
}

// Why is the reason for the state in one word: for which the job waits, is lost or leaves its worker, or what keeps it
// from making progress. It may be empty.
func (f Observation) Why() string {
	switch d := f.Dispatch; f.State() {
	case Waiting:
		return jobs.Reason(d)
	case Lost:
		return f.condition(v1alpha1.DispatchWorkerLost).Reason
	case Evicting:
		return string(d.Spec.Eviction.Reason)
	case Running:
		if trouble := record.Trouble(d); trouble != nil {
			return trouble.Reason
		}
	case Ended:
		if record.WasGivenUp(d) {
			return v1alpha1.ReasonGivenUp
		}
	default:
	}
	return ""
}

// Word is the state of the job in one word, for tables.
func (f Observation) Word() string {
	switch state := f.State(); state {
	case Ended:
		return trainjobs.Terminal(f.Job).Type
	case Running:
		switch phase := f.Dispatch.Status.Phase; phase {
		case v1alpha1.PhaseStarting, v1alpha1.PhaseRestarting:
			return string(phase)
		default:
			return state.String()
		}
	case Unmanaged:
		return "Unmanaged"
	case Unseen:
		return "Unseen"
	default:
		return state.String()
	}
}

// message returns the reason, and what a user can do, in the words of the record if possible.
func (f Observation) message() string {
	d, manager := f.Dispatch, trainjobs.ManagedBy(f.Job)
	switch f.State() {
	case Unmanaged:
		return fmt.Sprintf("spec.managedBy is %q, and Trainyard places jobs of %q (the default of the manager's "+
			"--managed-by); it cannot be changed, so create the job again with it", manager, v1alpha1.ManagedByMultiKueue)
	case Unseen:
		return fmt.Sprintf("there is no Dispatch: the manager has not seen the job yet, does not run, or owns another "+
			"value of spec.managedBy than %q", manager)
	case Suspended:
		return "spec.suspend is true; the job is placed when it is false"
	case Succeeding:
		return joined("the Dispatch of an earlier TrainJob of this name must be deleted first, which happens when its copy is gone"+at(d), record.EndHolder(d))
	case Deleting:
		return f.deletion()
	case Waiting:
		return Message(d)
	case Lost:
		return f.condition(v1alpha1.DispatchWorkerLost).Message
	case Returned:
		if mirrored := f.condition(v1alpha1.DispatchMirrored); mirrored != nil {
			return fmt.Sprintf("worker %s ended attempt %d (%s): %s", d.Spec.Cluster, d.Spec.Attempt, mirrored.Reason, mirrored.Message)
		}
	case Evicting:
		return joined(d.Spec.Eviction.Message, record.EndHolder(d))
	case Ended:
		return strings.TrimSpace(trainjobs.Terminal(f.Job).Message)
	case Queued:
		mirrored := f.condition(v1alpha1.DispatchMirrored)
		if mirrored != nil && mirrored.Reason != v1alpha1.ReasonCopied { // It has the words of the worker's Kueue.
			return mirrored.Message
		}
		return fmt.Sprintf("worker %s keeps the copy suspended: a queue there has not admitted it", d.Spec.Cluster)
	case Placed, Running:
		return cmp.Or(f.trouble(), record.EndHolder(d)) // Somebody on the worker may have deleted the copy.
	}
	return ""
}

// trouble returns the problem of a placed job's copy, or "".
func (f Observation) trouble() string {
	mirrored := f.condition(v1alpha1.DispatchMirrored)
	if mirrored == nil || mirrored.Status == "True" {
		return ""
	}
	return mirrored.Message
}

// deletion says what the deletion of the job waits for.
func (f Observation) deletion() string {
	text := "the job is deleted when its copy is gone" + at(f.Dispatch)
	if f.Dispatch == nil {
		return text
	}
	if lost := record.LostCondition(f.Dispatch); lost != nil {
		return text + fmt.Sprintf(" (%s): %s", lost.Reason, lost.Message)
	}
	return joined(text, record.EndHolder(f.Dispatch))
}

// joined is two sentences in one line, of which each may be empty.
func joined(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "; " + second
}

// staying returns why a job stays on a worker that is being drained.
func (f Observation) staying() string {
	if state := f.State(); state != Placed && state != Queued && state != Running {
		return ""
	}
	if !record.Stays(f.Dispatch) {
		return ""
	}
	why := f.condition(v1alpha1.DispatchEvicting)
	return fmt.Sprintf("stays on worker %s (%s): %s", f.Dispatch.Spec.Cluster, why.Reason, why.Message)
}

func (f Observation) condition(of string) *metav1.Condition {
	return meta.FindStatusCondition(f.Dispatch.Status.Conditions, of)
}

func at(d *v1alpha1.Dispatch) string {
	if d == nil || d.Status.Cluster == "" && d.Spec.Cluster == "" {
		return ""
	}
	if d.Status.Cluster != "" {
		return " from worker " + string(d.Status.Cluster)
	}
	return " from worker " + string(d.Spec.Cluster)
}
