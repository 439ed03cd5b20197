// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package forget

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Refusal says why a worker must not be forgotten. The zero value permits it.
type Refusal struct {
	// Why is the reason, for the admin.
	Why string
	// Final is true for a worker that answers: the hub would see it again at once. Its jobs can be moved by a drain.
	Final bool
}

// RefusalOf returns why a worker should not be forgotten: it answers, or that is not known.
func RefusalOf(worker *v1alpha1.WorkerCluster) Refusal {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	switch {
	case ready == nil:
		return Refusal{Why: "the manager has not said anything about it yet"}
	case ready.Status == metav1.ConditionTrue:
		return Refusal{Why: "it is Ready", Final: true}
	}
	switch {
	case ready.Reason == v1alpha1.ReasonConnecting:
		return Refusal{Why: "the manager is just connecting to it"}
	case ready.Reason == v1alpha1.ReasonTrainJobAPIMissing:
		return Refusal{Why: "it answers (" + ready.Reason + ")"}
	case worker.Status.Answers():
		return Refusal{Why: "it answers (" + ready.Reason + ")", Final: true}
	}
	return Refusal{}
}

// IsForgotten is true for a worker that somebody has already told the hub to forget.
func IsForgotten(worker *v1alpha1.WorkerCluster) bool {
	return worker.Status.ClusterID != "" && worker.Annotations[v1alpha1.AnnotationForget] == string(worker.Status.ClusterID)
}
