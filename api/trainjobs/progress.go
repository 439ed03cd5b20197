// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

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
