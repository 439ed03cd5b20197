// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package forget

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Refusal is why a worker should not be forgotten, empty if it may be: it answers, so that its jobs can be moved in order, or whether
// it does is not known.
func Refusal(worker *v1alpha1.WorkerCluster) string {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	switch {
	case ready == nil:
		return "the manager has not said anything about it yet"
	case ready.Status == metav1.ConditionTrue:
		return "it is Ready"
	}
	switch ready.Reason {
	case v1alpha1.ReasonConnecting:
		return "the manager is just connecting to it"
	case v1alpha1.ReasonConnected, v1alpha1.ReasonTrainJobAPIMissing, v1alpha1.ReasonJobSetAPIMissing,
		v1alpha1.ReasonCapacityReportMissing, v1alpha1.ReasonCapacityReportStale:
		return "it answers (" + ready.Reason + ")"
	}
	return ""
}

// IsForgotten is true for a worker that somebody has told the hub to forget already.
func IsForgotten(worker *v1alpha1.WorkerCluster) bool {
	return worker.Status.ClusterID != "" && worker.Annotations[v1alpha1.AnnotationForget] == string(worker.Status.ClusterID)
}
