// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeStatus writes the decided status of a TrainJob, if it changed.
//
// The patch names the resource version that was read. A merge patch replaces the whole list of conditions: without the
// version, it could remove a condition that another writer has added meanwhile.
func (r *Reconciler) writeStatus(ctx context.Context, job *trainer.TrainJob, status trainer.TrainJobStatus) error {
	if equality.Semantic.DeepEqual(job.Status, status) {
		return nil
	}
	changed := job.DeepCopy()
	changed.Status = status
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("patch status of TrainJob %s: %w", klog.KObj(job), err)
	}
	return nil
}

// takeReported copies into status only what comes from the JobSet.
func takeReported(status, reported *trainer.TrainJobStatus) {
	if reported == nil {
		return
	}
	for _, end := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if c := meta.FindStatusCondition(reported.Conditions, end); c != nil {
			meta.SetStatusCondition(&status.Conditions, *c)
		}
	}
	// A recreated JobSet has no job statuses for a moment. The last ones stay: the CRD has MinProperties=1.
	if len(reported.JobsStatus) > 0 {
		status.JobsStatus = reported.JobsStatus
	}
}
