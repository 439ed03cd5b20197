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

// deadlineOf returns when a TrainJob must have ended, if it has a deadline and is not suspended. The time counts from
// the last resumption or, if there was none, from the creation.
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

// expiryOf returns when the controller deletes a TrainJob that has ended, if the job has a TTL. An unreadable TTL
// counts as none: better keep a job too long than delete it too early. A copy has no TTL, whatever its annotation says:
// its hub deletes it. A hub that has not seen the copy's end would run the job again if the worker deleted it.
func expiryOf(job *trainer.TrainJob) (time.Time, bool) {
	ttl, limited, err := trainjobs.TTL(job.Annotations)
	end := endOf(&job.Status)
	if err != nil || !limited || end == nil || job.Labels[v1alpha1.LabelHub] != "" {
		return time.Time{}, false
	}
	return end.LastTransitionTime.Add(ttl), true
}

// runningSince is when the JobSet's pods were last meant to start: its last restart, resumption or creation.
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

// restartsOf counts the restarts of a JobSet and the restarts of single Jobs of it.
func restartsOf(jobSet *jobsetv1alpha2.JobSet) int32 {
	restarts := jobSet.Status.Restarts
	for _, job := range jobSet.Status.ReplicatedJobsStatus {
		for _, n := range job.JobRestarts {
			restarts += n
		}
	}
	return restarts
}
