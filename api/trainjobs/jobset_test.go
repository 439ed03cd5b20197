// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/check"
)

func TestHasStarted(t *testing.T) {
	jobSet := func(suspended bool, change func(*jobsetv1alpha2.JobSetStatus)) *jobsetv1alpha2.JobSet {
		js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "llm", UID: "js-1"}}
		js.Spec.Suspend = &suspended
		if change != nil {
			change(&js.Status)
		}
		return js
	}
	job := func(owner types.UID, generation int64, suspended bool) batchv1.Job {
		j := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		j.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "llm", UID: owner, Controller: new(true)}}
		j.Spec.Suspend = &suspended
		return j
	}
	cases := map[string]struct {
		reason string
		jobSet *jobsetv1alpha2.JobSet
		jobs   []batchv1.Job
		want   bool
	}{
		"NoJobsYet": {
			reason: "JobSet's controller has not been there.",
			jobSet: jobSet(true, nil),
		},
		"JobsCreatedSuspended": {
			reason: "That is how JobSet prepares a suspended JobSet.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-1", 1, true)},
		},
		"NotSuspended": {
			reason: "Its pods may exist or come at any moment.",
			jobSet: jobSet(false, nil), want: true,
		},
		"JobWasResumed": {
			reason: "A Job that was resumed and suspended again has another generation.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-1", 1, true), job("js-1", 3, true)}, want: true,
		},
		"JobNotYetSuspended": {
			reason: "The JobSet is suspended, a Job of it is not yet.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-1", 1, false)}, want: true,
		},
		"JobsOfNamesake": {
			reason: "An earlier JobSet of the same name left them.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-0", 2, false)},
		},
		"Restarted": {
			reason: "Jobs that a restart has made are new.",
			jobSet: jobSet(true, func(s *jobsetv1alpha2.JobSetStatus) { s.Restarts = 1 }),
			jobs:   []batchv1.Job{job("js-1", 1, true)}, want: true,
		},
		"AStepIsDone": {
			reason: "A Job that has succeeded may be gone by its TTL.",
			jobSet: jobSet(true, func(s *jobsetv1alpha2.JobSetStatus) {
				s.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "dataset-initializer", Succeeded: 1}}
			}),
			want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, trainjobs.HasStarted(tc.jobSet, tc.jobs), "%s", tc.reason)
		})
	}
}
