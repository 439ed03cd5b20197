// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// eventLimit is how long an Event's note may be.
const eventLimit = 1024

// recordFailed is for the end that somebody may want to look into. A created copy and a Complete job have no Event: the
// Event of the placement comes just before, the job's status says the end, and in a burst most writes would be Events.
func (h *hubSide) recordFailed(end *metav1.Condition) {
	if end.Type == trainer.TrainJobFailed {
		h.record(corev1.EventTypeWarning, end.Type, "On worker %s: %s", h.Cluster, end.Message)
	}
}

// recordEnded is for an attempt that ended without a copy. The reason of the Event is the outcome.
func (h *hubSide) recordEnded(outcome v1alpha1.Outcome, message string) {
	switch outcome {
	case v1alpha1.OutcomeRejected:
		h.record(corev1.EventTypeWarning, string(outcome), "Worker %s refused the TrainJob: %s", h.Cluster, message)
	case v1alpha1.OutcomePreempted, v1alpha1.OutcomeDrained, v1alpha1.OutcomeSuspended: // As intended.
		h.record(corev1.EventTypeNormal, string(outcome), "Stopped on worker %s: %s", h.Cluster, message)
	case v1alpha1.OutcomeAdmissionTimeout, v1alpha1.OutcomeCopyChanged:
		h.record(corev1.EventTypeWarning, string(outcome), "Stopped on worker %s: %s", h.Cluster, message)
	default:
		h.record(corev1.EventTypeWarning, string(outcome), "%s", message)
	}
}

// recordLeftOut says which names of the job the new copy does not have, because only Trainyard may write them there.
func (h *hubSide) recordLeftOut() {
	if names := reservedKeys(h.job); len(names) > 0 {
		h.record(corev1.EventTypeWarning, "NamesLeftOut",
			"The copy on worker %q was created without %s: names under %s are reserved; users may write the annotations %s",
			h.Cluster, strings.Join(names, ", "), v1alpha1.KeyPrefix, strings.Join(v1alpha1.UserAnnotations(), ", "))
	}
}

// recordRestored says what somebody had changed about the copy.
func (h *hubSide) recordRestored(names []string) {
	h.record(corev1.EventTypeWarning, "CopyRestored", "Undid changes that somebody made to the copy on worker %q: %s",
		h.Cluster, strings.Join(names, ", "))
}

// warnMisplaced says once why nothing is done for a job whose worker's name led to another cluster when it was placed.
func (h *hubSide) warnMisplaced() {
	if h.attempt.warned || h.job == nil {
		return
	}
	h.attempt.warned = true
	h.record(corev1.EventTypeWarning, v1alpha1.ReasonIdentityChanged,
		"Worker %q was cluster %s when the job was placed there, and is cluster %s now; the copy may still run on the "+
			"former cluster",
		h.Cluster, h.dispatch.Spec.ClusterID, h.ClusterID)
}

// record records an Event on the hub TrainJob.
func (h *hubSide) record(kind, reason, format string, args ...any) {
	h.Recorder.Eventf(h.job, nil, kind, reason, "Mirror", "%s", record.Shorten(fmt.Sprintf(format, args...), eventLimit))
}
