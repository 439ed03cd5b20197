// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
)

// announcer records Events on hub TrainJobs.
type announcer struct{ recorder events.EventRecorder }

func (a announcer) placed(job *unstructured.Unstructured, d *v1alpha1.Dispatch, decision dispatch.Decision) {
	a.recorder.Eventf(job, d, corev1.EventTypeNormal, "Placed", "Place",
		"Placed on worker %q (attempt %d): %s", decision.Cluster, d.Spec.Attempt, decision.Message)
}

// runtimeDiffers says that a job was placed by another demand than it will have.
func (a announcer) runtimeDiffers(job *unstructured.Unstructured, d *v1alpha1.Dispatch, words string) {
	a.recorder.Eventf(job, d, corev1.EventTypeWarning, v1alpha1.ReasonRuntimeDiffers, "Place", "%s", record.Cut(words, record.NoteLimit))
}

// waiting says why a job waits: for each worker where workers have been asked, as many as a note takes.
func (a announcer) waiting(
	job *unstructured.Unstructured, d *v1alpha1.Dispatch, decision dispatch.Decision, explanation []v1alpha1.ClusterExplanation,
) {
	eventType := corev1.EventTypeNormal
	if v1alpha1.ReasonKindOf(decision.Reason).NeedsRepair() {
		eventType = corev1.EventTypeWarning
	}
	note := wordsOf(decision, explanation) // One line, which is what kubectl get events shows.
	a.recorder.Eventf(job, d, eventType, "Waiting", "Place", "%s", record.Cut(note, record.NoteLimit))
}

// givenUp says that the job gets no worker any more.
func (a announcer) givenUp(job *unstructured.Unstructured, d *v1alpha1.Dispatch, words string) {
	a.recorder.Eventf(job, d, corev1.EventTypeWarning, v1alpha1.ReasonGivenUp, "GiveUp", "%s", record.Cut(words, record.NoteLimit))
}

// retried says that a job waits for no back-off.
func (a announcer) retried(job *unstructured.Unstructured, d *v1alpha1.Dispatch) {
	note := "No worker has refused the job, so there is none to ask again"
	if refusers := record.Refusers(d); len(refusers) > 0 {
		note = "Workers that have refused the job are asked again: " + listed(refusers)
	}
	a.recorder.Eventf(job, d, corev1.EventTypeNormal, "Retried", "Retry", "%s", record.Cut(note, record.NoteLimit))
}

// trialRefused says that a worker would refuse the copy of a job, so that no jobs are stopped for it there.
func (a announcer) trialRefused(job *unstructured.Unstructured, worker v1alpha1.ClusterName, words string) {
	a.recorder.Eventf(job, nil, corev1.EventTypeWarning, "WouldBeRejected", "Preempt", "%s", record.Cut(fmt.Sprintf(
		"No job is stopped for this one on worker %s, which would refuse it: %s", worker, words), record.NoteLimit))
}

// podsRefused says that a worker would refuse the copy of a job that has room there.
func (a announcer) podsRefused(job *unstructured.Unstructured, worker v1alpha1.ClusterName, words string) {
	a.recorder.Eventf(job, nil, corev1.EventTypeWarning, "WouldBeRejected", "Place", "%s", record.Cut(fmt.Sprintf(
		"The job is not sent to worker %s, which would refuse it: %s", worker, words), record.NoteLimit))
}

// refused says that not even a Dispatch without a decision can be recorded.
func (a announcer) refused(job *unstructured.Unstructured, err error) {
	a.recorder.Eventf(job, nil, corev1.EventTypeWarning, v1alpha1.ReasonWriteRefused, "Place", "%s", record.Cut(err.Error(), record.NoteLimit))
}

// concluded says that a job is over although its attempt was given up.
func (a announcer) concluded(seen *observation, end *metav1.Condition) {
	a.recorder.Eventf(seen.job, seen.dispatch, corev1.EventTypeNormal, "Finished", "Conclude",
		"The job is %s by attempt %d on worker %q, which had been given up", end.Type, seen.dispatch.Spec.Attempt, seen.dispatch.Spec.Cluster)
}
