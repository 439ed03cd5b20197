// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// announcer records Events on the hub TrainJob.
type announcer struct {
	seen      *observation
	attempt   *attempt
	cluster   v1alpha1.ClusterName
	clusterID types.UID
	recorder  events.EventRecorder
}

// failed is for the end that somebody may want to look into. A created copy and a Complete job have no Event: the
// Event of the placement comes just before, the job's status says the end, and in a burst most writes would be Events.
func (a *announcer) failed(end *metav1.Condition) {
	if end.Type == trainer.TrainJobFailed {
		a.record(corev1.EventTypeWarning, end.Type, "On worker %s: %s", a.cluster, end.Message)
	}
}

// ended is for an attempt that ended without a copy. The reason of the Event is the outcome.
func (a *announcer) ended(outcome v1alpha1.Outcome, message string) {
	ending, eventType := record.EndingOf(outcome), corev1.EventTypeWarning
	if ending.Intended {
		eventType = corev1.EventTypeNormal
	}
	if ending.Event != "" {
		message = fmt.Sprintf(ending.Event, a.cluster, message)
	}
	a.record(eventType, string(outcome), "%s", message)
}

// leftOut says which names of the job the new copy does not have, because only Trainyard may write them there.
func (a *announcer) leftOut() {
	if names := reservedKeys(a.seen.job); len(names) > 0 {
		a.record(corev1.EventTypeWarning, "NamesLeftOut",
			"The copy on worker %q was created without %s: names under %s are reserved; users may write the annotations %s",
			a.cluster, strings.Join(names, ", "), v1alpha1.KeyPrefix, strings.Join(v1alpha1.UserAnnotations(), ", "))
	}
}

// untold says which variables about checkpoints the new copy does not have, because the job has as many variables as the
// API takes.
func (a *announcer) untold() {
	spec := &a.seen.dispatch.Spec
	if spec.Checkpoint == nil {
		return
	}
	if names := trainjobs.AddCheckpointEnv(runtime.DeepCopyJSON(trainjobs.Spec(a.seen.job)), spec); len(names) > 0 {
		a.record(corev1.EventTypeWarning, "VariablesLeftOut",
			"The copy on worker %q was created without the variables %s: spec.trainer.env may have %d variables; let the TrainJob have %d fewer",
			a.cluster, strings.Join(names, ", "), trainjobs.MaxEnv, len(names))
	}
}

// leftAlone says which objects that the pods name were not brought to the worker, and why.
func (a *announcer) leftAlone(left []string) {
	if len(left) > 0 {
		a.record(corev1.EventTypeWarning, "DependenciesLeft", "Not brought to worker %q: %s", a.cluster, strings.Join(left, "; "))
	}
}

// stopped says that the worker has stopped a copy that had started. Nobody on the hub has asked for that.
func (a *announcer) stopped() {
	why := "The worker's Kueue or agent did it"
	if a.seen.isHeld() && a.seen.held.message != "" {
		why = a.seen.held.message
	}
	a.record(corev1.EventTypeWarning, "CopyStopped", "The copy was stopped on worker %s after it had started, and stays the copy of "+
		"attempt %d: %s", a.cluster, a.seen.dispatch.Spec.Attempt, why)
}

// restored says what somebody had changed about the copy.
func (a *announcer) restored(names []string) {
	a.record(corev1.EventTypeWarning, "CopyRestored", "Undid changes that somebody made to the copy on worker %q: %s",
		a.cluster, strings.Join(names, ", "))
}

// statusCut says once that the TrainJob does not show the whole status of the copy.
func (a *announcer) statusCut() {
	if a.attempt.reported.cut {
		return
	}
	a.attempt.reported.cut = true
	a.record(corev1.EventTypeWarning, "StatusCut",
		"The status of the copy on worker %q is larger than %d bytes; the TrainJob shows the conditions and counters of it that have room",
		a.cluster, trainjobs.MaxStatus)
}

// misplaced says once why nothing is done for a job whose worker's name led to another cluster when it was placed.
func (a *announcer) misplaced() {
	if a.attempt.warned || a.seen.job == nil {
		return
	}
	a.attempt.warned = true
	a.record(corev1.EventTypeWarning, v1alpha1.ReasonIdentityChanged,
		"Worker %q was cluster %s when the job was placed there, and is cluster %s now; the copy may still run on the "+
			"former cluster",
		a.cluster, a.seen.dispatch.Spec.ClusterID, a.clusterID)
}

// record records an Event on the hub TrainJob.
func (a *announcer) record(kind, reason, format string, args ...any) {
	a.recorder.Eventf(a.seen.job, nil, kind, reason, "Mirror", "%s", record.Shorten(fmt.Sprintf(format, args...), record.NoteLimit))
}
