// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// FieldOwner is the field manager that applies a TrainJob's objects: the Kubeflow Trainer's, as in the framework's
// snapshots. So a cluster can change between Trainer and agent, and an apply still removes fields that are gone.
const FieldOwner = "trainer"

// NewJobSet returns an empty JobSet, for a client to read into. It is unstructured, as TrainJobs are.
func NewJobSet() *unstructured.Unstructured {
	jobSet := &unstructured.Unstructured{}
	jobSet.SetGroupVersionKind(jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet"))
	return jobSet
}

// SnapshotName returns the name of the ConfigMap in which the runtime framework stores the runtime of a TrainJob
// (trainer v2.3.0 pkg/runtime/core/snapshot.go, which does not export the name).
func SnapshotName(trainJob string) string {
	return trainJob + "-runtime-snapshot"
}

// HasStarted says whether a JobSet may ever have had pods. jobs are the Jobs that have its name in their label.
//
// A Job that was created suspended has generation 1, and resuming raises it. So this is exact and survives restarts.
func HasStarted(jobSet *jobsetv1alpha2.JobSet, jobs []batchv1.Job) bool {
	if !ptr.Deref(jobSet.Spec.Suspend, false) || jobSet.Status.Restarts > 0 {
		return true
	}
	for _, status := range jobSet.Status.ReplicatedJobsStatus {
		if status.Succeeded > 0 || status.Failed > 0 {
			return true
		}
	}
	for i := range jobs {
		if metav1.IsControlledBy(&jobs[i], jobSet) && (jobs[i].Generation > 1 || !ptr.Deref(jobs[i].Spec.Suspend, false)) {
			return true
		}
	}
	return false
}
