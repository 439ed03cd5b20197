// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs_test

import (
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// counters are the counters of a replicated job.
type counters struct{ ready, succeeded, failed, active, suspended int32 }

func status(name string, c counters) trainer.JobStatus {
	return trainer.JobStatus{
		Name: name, Ready: ptr.To(c.ready), Succeeded: ptr.To(c.succeeded), Failed: ptr.To(c.failed), Active: ptr.To(c.active),
		Suspended: ptr.To(c.suspended),
	}
}

func TestStepState(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		job    trainer.JobStatus
		want   v1alpha1.StepState
	}{
		"Nothing":     {"it waits for another step", status("node", counters{}), v1alpha1.StepWaiting},
		"NoCounters":  {"a worker of another release says less", trainer.JobStatus{Name: "node"}, v1alpha1.StepWaiting},
		"Suspended":   {"it waits for somebody", status("node", counters{suspended: 1}), v1alpha1.StepWaiting},
		"NotReady":    {"pods are pending, or some of them are", status("node", counters{active: 1}), v1alpha1.StepWaiting},
		"Ready":       {"all pods of a Job run", status("node", counters{active: 1, ready: 1}), v1alpha1.StepRunning},
		"DoneNotYet":  {"all pods have ended, and the Job has not", status("node", counters{ready: 1}), v1alpha1.StepRunning},
		"Succeeded":   {"all Jobs have ended well", status("node", counters{succeeded: 2}), v1alpha1.StepSucceeded},
		"SomeAreLeft": {"one Job has ended and another is about to run", status("node", counters{succeeded: 1, active: 1}), v1alpha1.StepWaiting},
		"SomeRun":     {"one Job has ended and another runs", status("node", counters{succeeded: 1, active: 1, ready: 1}), v1alpha1.StepRunning},
		"Failed":      {"one Job that has failed is enough", status("node", counters{failed: 1, active: 1, ready: 1}), v1alpha1.StepFailed},
	} {
		t.Run(name, func(t *testing.T) {
			got := trainjobs.Steps([]trainer.JobStatus{test.job})
			check.Diff(t, []v1alpha1.Step{{Name: v1alpha1.StepTrainer, State: test.want}}, got, test.reason)
		})
	}
}

// TestStepNames checks that step names are unique, because the API server requires that.
func TestStepNames(t *testing.T) {
	for name, test := range map[string]struct {
		reason     string
		jobs, want []string
	}{
		"Trainer": {"users know no \"node\"", []string{"dataset-initializer", "node"}, []string{"dataset-initializer", "trainer"}},
		"Both":    {"a runtime may have both", []string{"node", "trainer"}, []string{"node", "trainer"}},
		"Own":     {"a runtime may have its own", []string{"evaluator"}, []string{"evaluator"}},
	} {
		t.Run(name, func(t *testing.T) {
			var jobs []trainer.JobStatus
			for _, name := range test.jobs {
				jobs = append(jobs, trainer.JobStatus{Name: name})
			}
			var got []string
			for _, step := range trainjobs.Steps(jobs) {
				got = append(got, step.Name)
			}
			check.Diff(t, test.want, got, test.reason)
		})
	}
}

func TestJobsStatus(t *testing.T) {
	job := trainjobs.New()
	job.Object["status"] = map[string]any{
		"new": "field", "jobsStatus": []any{map[string]any{
			"name": "node", "ready": int64(1), "succeeded": int64(2), "failed": int64(3), "active": int64(4), "suspended": int64(5), "new": "field",
		}},
	}
	want := []trainer.JobStatus{status("node", counters{ready: 1, succeeded: 2, failed: 3, active: 4, suspended: 5})}
	check.Diff(t, want, trainjobs.JobsStatus(job), "jobsStatus")
	for name, status := range map[string]any{
		"None": nil, "Empty": map[string]any{}, "Text": "x", "Counter": map[string]any{"jobsStatus": []any{map[string]any{"ready": "one"}}},
	} {
		job.Object["status"] = status
		if got := trainjobs.JobsStatus(job); got != nil {
			t.Errorf("%s: jobsStatus %v, want none", name, got)
		}
	}
}

func TestCompletionTime(t *testing.T) {
	condition := func(kind, status, at string) any {
		return map[string]any{"type": kind, "status": status, "lastTransitionTime": at}
	}
	const early, late = "2026-01-02T03:04:05Z", "2026-01-02T05:04:05+01:00"
	want := metav1.NewTime(time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC))
	for name, test := range map[string]struct {
		reason     string
		conditions []any
		want       *metav1.Time
	}{
		"Running":  {"it has not ended", []any{condition("Suspended", "False", early), condition("Complete", "False", late)}, nil},
		"New":      {"it has no status", nil, nil},
		"Complete": {"its end counts, and not what was before", []any{condition("Suspended", "False", early), condition("Complete", "True", late)}, &want},
		"Failed":   {"that is an end, too", []any{condition("Complete", "False", early), condition("Failed", "True", late)}, &want},
		"NoTime":   {"a worker said no time", []any{condition("Complete", "True", "soon")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			job := trainjobs.New()
			if test.conditions != nil {
				job.Object["status"] = map[string]any{"conditions": test.conditions}
			}
			check.Diff(t, test.want, trainjobs.CompletionTime(job), test.reason)
		})
	}
}
