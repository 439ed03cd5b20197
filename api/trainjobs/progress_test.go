// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs_test

import (
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

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

func TestHasStarted(t *testing.T) {
	jobSet := func(suspended bool, change func(*jobsetv1alpha2.JobSetStatus)) *jobsetv1alpha2.JobSet {
		js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "llm", UID: "js-1"}}
		js.Spec.Suspend = &suspended
		if change != nil {
			change(&js.Status)
		}
		return js
	}
	job := func(owner types.UID, generation int64, suspended bool) batchv1.Job {
		j := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		j.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "llm", UID: owner, Controller: new(true)}}
		j.Spec.Suspend = &suspended
		return j
	}
	cases := map[string]struct {
		reason string
		jobSet *jobsetv1alpha2.JobSet
		jobs   []batchv1.Job
		want   bool
	}{
		"NoJobsYet": {
			reason: "JobSet's controller has not been there.",
			jobSet: jobSet(true, nil),
		},
		"JobsCreatedSuspended": {
			reason: "That is how JobSet prepares a suspended JobSet.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-1", 1, true)},
		},
		"NotSuspended": {
			reason: "Its pods may exist or come at any moment.",
			jobSet: jobSet(false, nil), want: true,
		},
		"JobWasResumed": {
			reason: "A Job that was resumed and suspended again has another generation.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-1", 1, true), job("js-1", 3, true)}, want: true,
		},
		"JobNotYetSuspended": {
			reason: "The JobSet is suspended, a Job of it is not yet.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-1", 1, false)}, want: true,
		},
		"JobsOfNamesake": {
			reason: "An earlier JobSet of the same name left them.",
			jobSet: jobSet(true, nil), jobs: []batchv1.Job{job("js-0", 2, false)},
		},
		"Restarted": {
			reason: "Jobs that a restart has made are new.",
			jobSet: jobSet(true, func(s *jobsetv1alpha2.JobSetStatus) { s.Restarts = 1 }),
			jobs:   []batchv1.Job{job("js-1", 1, true)}, want: true,
		},
		"AStepIsDone": {
			reason: "A Job that has succeeded may be gone by its TTL.",
			jobSet: jobSet(true, func(s *jobsetv1alpha2.JobSetStatus) {
				s.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "dataset-initializer", Succeeded: 1}}
			}),
			want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, trainjobs.HasStarted(tc.jobSet, tc.jobs), "%s", tc.reason)
		})
	}
}
