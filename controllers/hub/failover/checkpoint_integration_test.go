// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

// The status of the TrainJob goes before a lost attempt ends. What it said of the run stays in the history.
func TestLostAttemptKeepsItsRun(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverFenced)
	job := s.job(t, key)
	check.Must(t, unstructured.SetNestedField(job.Object, map[string]any{
		"jobsStatus": []any{map[string]any{
			"name": "node", "ready": int64(1), "active": int64(1), "succeeded": int64(0), "failed": int64(0), "suspended": int64(0),
		}},
		"trainerStatus": map[string]any{"progressPercentage": int64(42), "lastUpdatedTime": "2026-11-27T11:00:00Z"},
	}, "status"))
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), job))
	s.Clock.Step(24 * time.Hour)
	s.reconcile(t)
	d := s.goesOn(t, key, v1alpha1.ReasonFencing)
	check.Equal(t, s.worker, record.RanOn(d), "the job runs on")
	s.reconcile(t)
	s.isMoved(t, key)
	last := record.LastRun(s.Dispatch(t, key.Name))
	if last == nil || last.Cluster != s.worker || last.Progress == nil {
		t.Fatalf("the last attempt that ran is %+v", last)
	}
	check.Diff(t, ptr.To(int32(42)), last.Progress.ProgressPercentage, "what it reached")
}
