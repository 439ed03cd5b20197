// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// eventLimit is what an Event's note takes.
const eventLimit = 1024

// recordFailed is for the end that somebody may want to look into. That a copy was created, and that a job is Complete, needs no Event of
// its own: the one of the placement comes just before, the job's status says the end, and in a burst Events would be most of what is
// written.
func (r *reconciler) recordFailed(f facts, end *metav1.Condition) {
	if end.Type == trainer.TrainJobFailed {
		r.Recorder.Eventf(f.job, nil, corev1.EventTypeWarning, end.Type, "Mirror",
			"%s", record.Shorten("On worker "+string(r.Cluster)+": "+end.Message, eventLimit))
	}
}

// recordEnded is for an attempt that ended without a copy; the reason of the Event is the outcome.
func (r *reconciler) recordEnded(f facts, outcome v1alpha1.Outcome, message string) {
	kind, text := corev1.EventTypeWarning, message
	switch outcome {
	case v1alpha1.OutcomeRejected:
		text = "Worker " + string(r.Cluster) + " refused the TrainJob: " + message
	case v1alpha1.OutcomePreempted, v1alpha1.OutcomeDrained, v1alpha1.OutcomeSuspended: // It is meant to be, and the job goes on.
		kind, text = corev1.EventTypeNormal, "Stopped on worker "+string(r.Cluster)+": "+message
	case v1alpha1.OutcomeAdmissionTimeout, v1alpha1.OutcomeCopyChanged:
		text = "Stopped on worker " + string(r.Cluster) + ": " + message
	default:
	}
	r.Recorder.Eventf(f.job, nil, kind, string(outcome), "Mirror", "%s", record.Shorten(text, eventLimit))
}

// recordLeftOut says which names of the job are not on the copy that was just created, because only Trainyard may write
// them there.
func (r *reconciler) recordLeftOut(f facts) {
	names := reservedKeys(f.job)
	if len(names) == 0 {
		return
	}
	r.Recorder.Eventf(f.job, nil, corev1.EventTypeWarning, "NamesLeftOut", "Mirror", "%s", record.Shorten(fmt.Sprintf(
		"The copy on worker %q is without %s: names under %s are reserved; users may write the annotations %s",
		r.Cluster, strings.Join(names, ", "), v1alpha1.KeyPrefix, strings.Join(v1alpha1.UserAnnotations(), ", ")),
		eventLimit))
}

// recordRestored says what somebody had changed about the copy.
func (r *reconciler) recordRestored(f facts, names []string) {
	r.Recorder.Eventf(f.job, nil, corev1.EventTypeWarning, "CopyRestored", "Mirror",
		"%s", record.Shorten(fmt.Sprintf("Changed back on worker %q what was changed there: %s", r.Cluster, strings.Join(names, ", ")), eventLimit))
}

// warnMisplaced says once why nothing is done about a job that was placed on the cluster that its worker's name led to before.
func (r *reconciler) warnMisplaced(f facts, past *recollection) {
	if past.warned || f.job == nil {
		return
	}
	past.warned = true
	r.Recorder.Eventf(f.job, nil, corev1.EventTypeWarning, v1alpha1.ReasonIdentityChanged, "Mirror",
		"Worker %q was cluster %s when the job was placed there, and is cluster %s now; the copy may still run on the former",
		r.Cluster, f.dispatch.Spec.ClusterID, r.ClusterID)
}
