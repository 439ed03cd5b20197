// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
)

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
