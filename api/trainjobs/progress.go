// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Steps returns how far each step of a job is, in the order of jobs. JobSet sorts them by name, not in the runtime's
// order. Step names are unique, even if a runtime has a replicated job "trainer" beside "node".
func Steps(jobs []trainer.JobStatus) []v1alpha1.Step {
	taken := slices.ContainsFunc(jobs, func(job trainer.JobStatus) bool { return job.Name == v1alpha1.StepTrainer })
	var steps []v1alpha1.Step
	for _, job := range jobs {
		name := job.Name
		if !taken {
			name = StepName(name)
		}
		steps = append(steps, v1alpha1.Step{Name: name, State: stepState(job)})
	}
	return steps
}

// StepName returns the user's name of a replicated job. The training pods of every runtime are in "node".
func StepName(replicatedJob string) string {
	if replicatedJob == constants.Node {
		return v1alpha1.StepTrainer
	}
	return replicatedJob
}

// stepState reads the counters of the child Jobs. A Job whose pods are all done counts as ready until it is Complete.
func stepState(job trainer.JobStatus) v1alpha1.StepState {
	switch {
	case ptr.Deref(job.Failed, 0) > 0:
		return v1alpha1.StepFailed
	case ptr.Deref(job.Ready, 0) > 0:
		return v1alpha1.StepRunning
	case ptr.Deref(job.Succeeded, 0) > 0 && ptr.Deref(job.Active, 0) == 0:
		return v1alpha1.StepSucceeded
	default:
		return v1alpha1.StepWaiting
	}
}

// JobsStatus returns status.jobsStatus, or nil if it is missing or not readable.
func JobsStatus(job *unstructured.Unstructured) []trainer.JobStatus {
	list, found, err := unstructured.NestedFieldNoCopy(job.Object, "status", "jobsStatus")
	if !found || err != nil {
		return nil
	}
	var status trainer.TrainJobStatus
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"jobsStatus": list}, &status); err != nil {
		return nil
	}
	return status.JobsStatus
}

// CompletionTime returns when the job became Complete or Failed, by the clock of the cluster that ran it, or nil.
func CompletionTime(job *unstructured.Unstructured) *metav1.Time {
	end := Terminal(job)
	if end == nil {
		return nil
	}
	conditions, _, _ := unstructured.NestedFieldNoCopy(job.Object, "status", "conditions")
	for _, item := range conditions.([]any) { // Terminal has found a condition.
		condition, _ := item.(map[string]any)
		if condition["type"] != end.Type {
			continue
		}
		text, _ := condition["lastTransitionTime"].(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return &metav1.Time{Time: at}
		}
	}
	return nil
}

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
