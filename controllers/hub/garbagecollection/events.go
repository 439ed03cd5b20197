// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// recordUnknown records an Event about an unknown copy, once for each copy.
func (q *Quarantine) recordUnknown(worker *v1alpha1.WorkerCluster, copy v1alpha1.UnknownCopy) {
	q.Recorder.Eventf(worker, nil, corev1.EventTypeWarning, v1alpha1.ReasonUnknownCopy, "Quarantine",
		"The hub has no record of the copy %s/%s (UID %s, attempt %d)%s; it is left alone. "+
			"Decide about it with: kubectl trainyard adopt|release %s %s/%s",
		copy.Namespace, copy.Name, copy.UID, copy.Attempt, disbelief(copy), worker.Name, copy.Namespace, copy.Name)
}

// disbelief says why the manager does not believe the attempt of a copy that it would adopt otherwise.
func disbelief(copy v1alpha1.UnknownCopy) string {
	if copy.Reason == "" {
		return ""
	}
	return fmt.Sprintf(" and does not accept that it is the job's: %s: %s", copy.Reason, copy.Message)
}

// recordAdopted records on the hub TrainJob that the manager has found a copy and adopted it.
func (a adopter) recordAdopted(job *unstructured.Unstructured, d *v1alpha1.Dispatch) {
	a.recorder.Eventf(job, d, corev1.EventTypeNormal, "Adopted", "Adopt",
		"Found the copy of attempt %d on worker %q, of which the hub had no record, and adopted it", d.Spec.Attempt, a.here.Name)
}

// recordDecided records that the manager has carried out a decision about an unknown copy.
func (d decisions) recordDecided(worker *v1alpha1.WorkerCluster, copy client.Object, decision v1alpha1.CopyDecision) {
	d.recorder.Eventf(worker, nil, corev1.EventTypeNormal, "Decided", string(decision),
		"%s: the copy %s/%s (UID %s)", decision, copy.GetNamespace(), copy.GetName(), copy.GetUID())
}

// recordRefused records why the manager does not carry out a decision about an unknown copy.
func (d decisions) recordRefused(worker *v1alpha1.WorkerCluster, copy client.Object, why string) {
	d.recorder.Eventf(worker, nil, corev1.EventTypeWarning, "DecisionNotCarriedOut", "Decide",
		"Nothing was done about the copy %s/%s (UID %s): %s", copy.GetNamespace(), copy.GetName(), copy.GetUID(), why)
}
