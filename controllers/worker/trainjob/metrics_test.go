// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// TestReasonsDoNotMakeMetrics: a writer of JobSet statuses cannot create any number of metrics.
func TestReasonsDoNotMakeMetrics(t *testing.T) {
	for reason, want := range map[string]string{
		"AllJobsCompleted": "AllJobsCompleted", "FailedJobs": "FailedJobs", "ReachedMaxRestarts": "ReachedMaxRestarts",
		"FailJobSetFailurePolicyAction": "FailJobSetFailurePolicyAction", "DeadlineExceeded": "DeadlineExceeded",
		"TrainingRuntimeNotSupported": "TrainingRuntimeNotSupported", "Forged-1": "Other", "": "Other",
	} {
		check.Equal(t, want, countedReason(reason), "reason %q is counted as", reason)
	}
}
