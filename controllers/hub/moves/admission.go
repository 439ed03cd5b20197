// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// mayBeHeld is false for a Dispatch that says that the job runs or has no copy yet. Then nobody has to read the job.
func mayBeHeld(d *v1alpha1.Dispatch) bool {
	return d.WasCopied() && !slices.ContainsFunc(d.Status.Steps, func(step v1alpha1.Step) bool { return step.State == v1alpha1.StepRunning })
}

// isHeld is true for a job whose copy is suspended on its worker or has no pods, as the status of the hub's job shows,
// or has a pod for which there is no node.
func isHeld(d *v1alpha1.Dispatch, job *unstructured.Unstructured) bool {
	if !mayBeHeld(d) {
		return false
	}
	if isUnschedulable(d) {
		return true
	}
	started := slices.ContainsFunc(trainjobs.JobsStatus(job), func(step trainer.JobStatus) bool {
		return ptr.Deref(step.Active, 0)+ptr.Deref(step.Ready, 0)+ptr.Deref(step.Succeeded, 0)+ptr.Deref(step.Failed, 0) > 0
	})
	return !started || trainjobs.HasCondition(job, trainer.TrainJobSuspended)
}

// isUnschedulable is true for a job that has a pod for which its worker has no node.
func isUnschedulable(d *v1alpha1.Dispatch) bool {
	trouble := record.Trouble(d)
	return trouble != nil && trouble.Reason == v1alpha1.ReasonUnschedulable
}

// confirmTime is how long this process must see a job held before the job can be overdue: after a restart, and when a
// worker is back, the hub's status of the job is old.
const confirmTime = 30 * time.Second

// patience says since when a worker has kept a job from running. Zero: the worker is not known to keep it from running.
type patience struct {
	attempt int32
	// interrupted: in this attempt the job was not always held, or its worker was away. Then since is when this process
	// saw the job held again. Otherwise, and for a job that has not begun to run, since is when the copy was reported,
	// which a restart does not forget.
	interrupted bool
	// since is the start of the timeout. seen is when this process first saw the job held. Both are zero for other jobs.
	since, seen time.Time
}

func (p patience) due(timeout time.Duration) time.Time {
	due, confirmed := p.since.Add(timeout), p.seen.Add(min(timeout, confirmTime))
	if due.Before(confirmed) {
		return confirmed
	}
	return due
}

// waiting has the patience of each job, by the UID of its TrainJob.
type waiting map[types.UID]patience

// observe records whether a job is held now, and returns its patience.
func (w waiting) observe(d *v1alpha1.Dispatch, isHeld bool, now time.Time) patience {
	p := w[d.Spec.TrainJob.UID]
	if p.attempt != d.Spec.Attempt {
		p = patience{attempt: d.Spec.Attempt}
	}
	switch {
	case !isHeld:
		p.since, p.seen, p.interrupted = time.Time{}, time.Time{}, true
	case p.seen.IsZero() && p.interrupted && !isNew(d):
		p.since, p.seen = now, now
	case p.seen.IsZero():
		p.since, p.seen = copiedAt(d, now), now
	}
	w[d.Spec.TrainJob.UID] = p
	return p
}

// isNew is true for a job of which no pod has begun to run, because the worker has not found nodes for all pods.
func isNew(d *v1alpha1.Dispatch) bool {
	return d.Status.Phase == v1alpha1.PhaseStarting && isUnschedulable(d) &&
		!slices.ContainsFunc(d.Status.Steps, func(step v1alpha1.Step) bool { return step.State != v1alpha1.StepWaiting })
}

// copiedAt is when the copy was reported, by the hub's clock.
func copiedAt(d *v1alpha1.Dispatch, now time.Time) time.Time {
	mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
	if mirrored == nil || mirrored.Status != metav1.ConditionTrue || mirrored.LastTransitionTime.After(now) {
		return now
	}
	return mirrored.LastTransitionTime.Time
}
