// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

const action = "Failover"

// recordHeld tells the owner of a job that its worker is lost. The Event has the reason of the condition.
func (r *Reconciler) recordHeld(f *jobObservation, decided decision) {
	if !record.JobStays(f.dispatch, f.job) {
		// The job is being deleted. Its Dispatch says for what the deletion waits.
		return
	}
	r.Recorder.Eventf(f.job, f.dispatch, corev1.EventTypeWarning, v1alpha1.ReasonWorkerLost, action,
		"%s", record.Shorten(decided.do.reason()+": "+decided.words, record.NoteLimit))
}

func (r *Reconciler) recordMoved(f *jobObservation, decided decision) {
	r.Recorder.Eventf(f.job, f.dispatch, corev1.EventTypeWarning, v1alpha1.ReasonWorkerLost, action,
		"Gave up attempt %d, so that the job can be placed again: %s", f.dispatch.Spec.Attempt, decided.words)
}

func (r *Reconciler) recordPaused(o *observation) {
	r.Recorder.Eventf(o.worker, nil, corev1.EventTypeWarning, v1alpha1.WorkerClusterFailoverPaused, action,
		"%d other workers were lost together with this worker, and %d answer: the jobs of this worker are not moved", o.losses.away, o.losses.answering)
}

func (r *Reconciler) recordResumed(o *observation) {
	r.Recorder.Eventf(o.worker, nil, corev1.EventTypeNormal, "FailoverResumed", action, "Failover is no longer paused "+
		"for this worker")
}

func (r *Reconciler) recordRemembered(o *observation) {
	r.Recorder.Eventf(o.worker, nil, corev1.EventTypeNormal, "NotForgotten", action,
		"Removed the annotation %s, because the worker answers", v1alpha1.AnnotationForget)
}
