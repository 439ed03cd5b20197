// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/api/kueues"
)

func TestPatch(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	const before = "2026-11-23T11:00:00Z"
	review := &Review{checks: []kueues.CheckState{
		{Name: "a", State: kueues.CheckPending, Message: "waits", LastTransitionTime: before, RetryCount: 2},
		{Name: "b", State: kueues.CheckReady, LastTransitionTime: before},
	}}
	for name, test := range map[string]struct {
		reason, state string
		want          []any
	}{
		"Pending": {
			reason: "the state of a is old", state: kueues.CheckPending, want: []any{
				map[string]any{"name": "a", "state": "Pending", "message": "words", "lastTransitionTime": before},
				map[string]any{"name": "b", "state": "Pending", "message": "words", "lastTransitionTime": "2026-11-23T12:00:00Z"},
			},
		},
		"Retry": {
			reason: "both are new", state: kueues.CheckRetry, want: []any{
				map[string]any{"name": "a", "state": "Retry", "message": "words", "lastTransitionTime": "2026-11-23T12:00:00Z"},
				map[string]any{"name": "b", "state": "Retry", "message": "words", "lastTransitionTime": "2026-11-23T12:00:00Z"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			patch := review.Patch(test.state, "words", now)
			got := patch.Object["status"].(map[string]any)["admissionChecks"]
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the checks are wrong (%s) (-want +got):\n%s", test.reason, diff)
			}
		})
	}
	if review.Says(kueues.CheckPending, "waits") {
		t.Error("the check b does not say that")
	}
	if got := review.Retries(); got != 2 {
		t.Errorf("it was retried %d times, want 2", got)
	}
}
