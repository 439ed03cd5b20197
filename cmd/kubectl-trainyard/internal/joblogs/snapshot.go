// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// snapshot is what is known of a job at one moment.
type snapshot struct {
	// job is the TrainJob. nil: it was deleted.
	job *unstructured.Unstructured
	// typed is job in the Go type, without unknown fields.
	typed *trainer.TrainJob
	// jobSet is the JobSet of the job. nil: there is none, or the user may not read it.
	jobSet *jobsetv1alpha2.JobSet
	// jobSetDeleted is true if there is no JobSet and the user may read it.
	jobSetDeleted bool
	// pods are the pods of all steps, unsorted.
	pods []*corev1.Pod
	// now is the time of the snapshot, for ages.
	now time.Time
}

// newSnapshot leaves out the JobSet and the pods of an earlier job of the same name.
func newSnapshot(job *unstructured.Unstructured, jobSet *jobsetv1alpha2.JobSet, pods []*corev1.Pod, now time.Time) (*snapshot, error) {
	if job == nil {
		return &snapshot{now: now}, nil
	}
	typed, err := trainjobs.Typed(job)
	if err != nil {
		return nil, err
	}
	s := &snapshot{job: job, typed: typed, now: now}
	if jobSet != nil && metav1.IsControlledBy(jobSet, job) {
		s.jobSet = jobSet
	}
	created := job.GetCreationTimestamp()
	s.pods = slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.CreationTimestamp.Before(&created) })
	return s, nil
}

// end returns the condition with which the job has ended, or nil.
func (s *snapshot) end() *metav1.Condition {
	if s.job == nil {
		return nil
	}
	return trainjobs.Terminal(s.job)
}
