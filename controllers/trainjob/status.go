// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// finishedTotal is one per process, as controller-runtime's own metrics and its registry are.
var finishedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "trainyard_trainjobs_finished_total",
	Help: "TrainJobs that this process has seen finish, by condition (Complete, Failed) and its reason.",
}, []string{"condition", "reason"})

func init() {
	metrics.Registry.MustRegister(finishedTotal)
}

// writeStatus gives a TrainJob the decided status, if it has another one.
//
// The patch names the resource version that was observed. Conditions are a list, and a merge patch replaces lists whole: without
// the version, a condition that somebody else has added meanwhile would be lost.
func (r *Reconciler) writeStatus(ctx context.Context, job *trainer.TrainJob, d decision) error {
	if equality.Semantic.DeepEqual(job.Status, d.status) {
		return nil
	}
	changed := job.DeepCopy()
	changed.Status = d.status
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("patch status of TrainJob %s: %w", klog.KObj(job), err)
	}
	for _, end := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if c := meta.FindStatusCondition(d.status.Conditions, end); c != nil && c.Status == metav1.ConditionTrue {
			finishedTotal.WithLabelValues(c.Type, c.Reason).Inc()
			ctrl.LoggerFrom(ctx).Info("TrainJob has finished", "condition", c.Type, "reason", c.Reason, "message", c.Message)
		}
	}
	return nil
}

// setSuspended records whether the job is suspended. That it is not is only worth a condition if it has been.
func setSuspended(status *trainer.TrainJobStatus, suspended bool, now time.Time) {
	c := metav1.Condition{Type: trainer.TrainJobSuspended, LastTransitionTime: metav1.NewTime(now)}
	switch {
	case suspended:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, trainer.TrainJobSuspendedReason, constants.TrainJobSuspendedMessage
	case meta.IsStatusConditionTrue(status.Conditions, trainer.TrainJobSuspended):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, trainer.TrainJobResumedReason, constants.TrainJobResumedMessage
	default:
		return
	}
	meta.SetStatusCondition(&status.Conditions, c)
}

func setFailed(status *trainer.TrainJobStatus, reason, message string, now time.Time) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               trainer.TrainJobFailed,
		Status:             metav1.ConditionTrue,
		Reason:             reason,
		Message:            message,
		LastTransitionTime: metav1.NewTime(now),
	})
}

// takeReported copies into status what comes from the JobSet, and nothing else.
func takeReported(status, reported *trainer.TrainJobStatus) {
	if reported == nil {
		return
	}
	for _, end := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if c := meta.FindStatusCondition(reported.Conditions, end); c != nil {
			meta.SetStatusCondition(&status.Conditions, *c)
		}
	}
	// A JobSet that was deleted and built again has no job statuses for a moment. The last ones stay: the CRD refuses an empty
	// status (MinProperties=1).
	if len(reported.JobsStatus) > 0 {
		status.JobsStatus = reported.JobsStatus
	}
}
