// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/api/meta"

// ReadyReason returns the reason of the Ready condition, or "" if there is no such condition.
func (s *WorkerClusterStatus) ReadyReason() string {
	if ready := meta.FindStatusCondition(s.Conditions, WorkerClusterReady); ready != nil {
		return ready.Reason
	}
	return ""
}

// Answers is true if the status says that the hub can work with the worker: it can look after jobs there, and stop
// them. Without a report, or without the quota that is asked for, the worker gets no new jobs, and its jobs go on.
// Without JobSet it gets no new jobs either, and its jobs are taken back.
func (s *WorkerClusterStatus) Answers() bool {
	switch s.ReadyReason() {
	case ReasonConnected, ReasonCapacityReportMissing, ReasonCapacityReportStale, ReasonQuotaMissing, ReasonCapacityUnusable,
		ReasonJobSetAPIMissing:
		return true
	}
	return false
}

// IsExpected is true for a worker that answers, and for a worker that is being connected again, as each worker is when
// the manager starts. A worker that has never been connected has no cluster ID.
func (w *WorkerCluster) IsExpected() bool {
	if w.DeletionTimestamp != nil {
		return false
	}
	return w.Status.Answers() || w.Status.ReadyReason() == ReasonConnecting && w.Status.ClusterID != ""
}
