// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// deadlineOf returns when a TrainJob has to be over, if it has a deadline and its time runs: since the last resumption, else
// since the creation. The time stops while the job is suspended.
func deadlineOf(job *trainer.TrainJob, status *trainer.TrainJobStatus) (time.Time, bool) {
	if job.Spec.ActiveDeadlineSeconds == 0 || isSuspended(job) {
		return time.Time{}, false
	}
	start := job.CreationTimestamp.Time
	if c := meta.FindStatusCondition(status.Conditions, trainer.TrainJobSuspended); c != nil && c.Status == metav1.ConditionFalse {
		start = c.LastTransitionTime.Time
	}
	return start.Add(time.Duration(job.Spec.ActiveDeadlineSeconds) * time.Second), true
}

func failedByDeadline(job *trainer.TrainJob) bool {
	end := endOf(&job.Status)
	return end != nil && end.Type == trainer.TrainJobFailed && end.Reason == trainer.TrainJobDeadlineExceededReason
}

// expiryOf returns when a TrainJob that is over has to go, if it has a TTL. One that cannot be read is none: the
// webhook refuses it, and where there is no webhook, to keep a job too long is better than to delete it too early. A
// copy has none, whoever has annotated it: its hub deletes it, and would run the job again if the copy went before the
// hub has seen its end.
func expiryOf(job *trainer.TrainJob) (time.Time, bool) {
	ttl, limited, err := trainjobs.TTL(job.Annotations)
	end := endOf(&job.Status)
	if err != nil || !limited || end == nil || job.Labels[v1alpha1.LabelHub] != "" {
		return time.Time{}, false
	}
	return end.LastTransitionTime.Add(ttl), true
}

// runningSince is since when a JobSet's pods are meant to run: its last restart or resumption, else its creation.
func runningSince(jobSet *jobsetv1alpha2.JobSet) time.Time {
	since := jobSet.CreationTimestamp.Time
	for _, kind := range []jobsetv1alpha2.JobSetConditionType{jobsetv1alpha2.JobSetSuspended, jobsetv1alpha2.JobSetRestarting} {
		c := meta.FindStatusCondition(jobSet.Status.Conditions, string(kind))
		if c != nil && c.Status == metav1.ConditionFalse && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// restartsOf counts how often a JobSet has restarted, wholly or one of its Jobs.
func restartsOf(jobSet *jobsetv1alpha2.JobSet) int32 {
	restarts := jobSet.Status.Restarts
	for _, job := range jobSet.Status.ReplicatedJobsStatus {
		for _, n := range job.JobRestarts {
			restarts += n
		}
	}
	return restarts
}
