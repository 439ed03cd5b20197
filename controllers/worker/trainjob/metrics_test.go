// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"
)

// TestReasonsDoNotMakeMetrics: a writer of JobSet statuses cannot create any number of metrics.
func TestReasonsDoNotMakeMetrics(t *testing.T) {
	for reason, want := range map[string]string{
		"AllJobsCompleted": "AllJobsCompleted", "FailedJobs": "FailedJobs", "ReachedMaxRestarts": "ReachedMaxRestarts",
		"FailJobSetFailurePolicyAction": "FailJobSetFailurePolicyAction", "DeadlineExceeded": "DeadlineExceeded",
		"TrainingRuntimeNotSupported": "TrainingRuntimeNotSupported", "Forged-1": "Other", "": "Other",
	} {
		if got := countedReason(reason); got != want {
			t.Errorf("reason %q is counted as %q, want %q", reason, got, want)
		}
	}
}
