// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// Three moments of a worker.
const (
	created = "2026-01-02T03:00:00Z"
	resumed = "2026-01-02T04:00:00Z"
	over    = "2026-01-02T05:00:00Z"
)

func at(t *testing.T, moment string) *metav1.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, moment)
	check.Must(t, err)
	return ptr.To(metav1.NewTime(parsed))
}

func testJobSet(suspend bool, status map[string]any) *unstructured.Unstructured {
	jobSet := trainjobs.NewJobSet()
	jobSet.Object["metadata"] = map[string]any{"creationTimestamp": created}
	jobSet.Object["spec"] = map[string]any{"suspend": suspend}
	jobSet.Object["status"] = status
	return jobSet
}

func suspended(status string) []any {
	return []any{map[string]any{"type": "Suspended", "status": status, "lastTransitionTime": resumed}}
}

func TestCourseOf(t *testing.T) {
	perJob := []any{
		map[string]any{"name": "node", "jobRestarts": []any{int64(1), int64(0), int64(2)}},
		map[string]any{"name": "launcher", "jobRestarts": []any{int64(4)}},
		map[string]any{"name": "model-initializer"},
	}
	for name, test := range map[string]struct {
		reason string
		jobSet *unstructured.Unstructured
		want   course
	}{
		"New": {
			reason: "JobSet's controller has not seen it yet", jobSet: testJobSet(false, nil),
			want: course{startTime: at(t, created)},
		},
		"CreatedSuspended": {
			reason: "a suspended job has not started", jobSet: testJobSet(true, map[string]any{"conditions": suspended("True")}),
		},
		"CreatedSuspendedAndNew": {reason: "the spec is enough", jobSet: testJobSet(true, nil)},
		"BeingResumed": {
			reason: "it was created long before it will have started",
			jobSet: testJobSet(false, map[string]any{"conditions": suspended("True")}),
		},
		"Resumed": {
			reason: "the last start counts", jobSet: testJobSet(false, map[string]any{"conditions": suspended("False")}),
			want: course{startTime: at(t, resumed)},
		},
		"BeingSuspendedAgain": {
			reason: "the condition is of the time before", jobSet: testJobSet(true, map[string]any{"conditions": suspended("False")}),
		},
		"Restarts": {
			reason: "those of the whole and those of each Job are different restarts",
			jobSet: testJobSet(false, map[string]any{"restarts": int64(10), "replicatedJobsStatus": perJob}),
			want:   course{restarts: 17, startTime: at(t, created)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := courseOf(test.jobSet)
			check.Must(t, err)
			check.Diff(t, test.want, got, test.reason, cmp.AllowUnexported(course{}))
		})
	}
	if _, err := courseOf(testJobSet(false, map[string]any{"restarts": "many"})); err == nil {
		t.Error("a JobSet of another schema was read")
	}
}

// reporting gives a job the status of replicated jobs: "ready", "succeeded", "failed", or "" for none.
func reporting(namesAndStates ...string) jobOption {
	return func(job *unstructured.Unstructured) {
		var jobs []any
		for i := 0; i < len(namesAndStates); i += 2 {
			fields := map[string]any{"name": namesAndStates[i]}
			if state := namesAndStates[i+1]; state != "" {
				fields[state] = int64(1)
			}
			jobs = append(jobs, fields)
		}
		status, _ := job.Object["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
			job.Object["status"] = status
		}
		status["jobsStatus"] = jobs
	}
}

// endedAt is ended, with a time.
func endedAt(kind, moment string) jobOption {
	return func(job *unstructured.Unstructured) {
		ended(kind)(job)
		conditions := job.Object["status"].(map[string]any)["conditions"].([]any)
		conditions[len(conditions)-1].(map[string]any)["lastTransitionTime"] = moment
	}
}

// shows makes a Dispatch show the progress of this attempt.
func shows(t *testing.T, attempt int32) dispatchOption {
	mirrored := condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, attempt)
	return func(d *v1alpha1.Dispatch) {
		mirrored(d)
		d.Status.Phase = v1alpha1.PhaseRunning
		d.Status.Steps = []v1alpha1.Step{{Name: "trainer", State: v1alpha1.StepRunning}}
		d.Status.Restarts, d.Status.StartTime = 3, at(t, created)
	}
}

// stopped is a Dispatch that shows that its copy was stopped.
func stopped(d *v1alpha1.Dispatch) {
	d.Status.Restarts, d.Status.Stops, d.Status.StartTime = 4, 1, nil
}

func inRuntimeOrder(d *v1alpha1.Dispatch) {
	d.Spec.PodSets = []v1alpha1.PodSet{{Name: "dataset-initializer"}, {Name: "model-initializer"}, {Name: "launcher"}, {Name: "node"}}
}

func TestShowProgress(t *testing.T) {
	steps := func(namesAndStates ...string) (steps []v1alpha1.Step) {
		for i := 0; i < len(namesAndStates); i += 2 {
			steps = append(steps, v1alpha1.Step{Name: namesAndStates[i], State: v1alpha1.StepState(namesAndStates[i+1])})
		}
		return steps
	}
	for name, test := range map[string]struct {
		reason      string
		observation observation
		want        v1alpha1.DispatchStatus
		// progress: a Dispatch that says that there is a copy is written because of this progress.
		progress bool
	}{
		"NothingKnown": {
			reason:      "a copy that was just created",
			observation: observation{job: testJob("origin"), copy: testCopy("origin", "2"), dispatch: testDispatch()},
		},
		"OrderOfTheRuntime": {
			reason: "JobSet sorts by name",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(inRuntimeOrder), course: &course{startTime: at(t, created)},
				copy: testCopy("origin", "2", reporting("node", "", "model-initializer", "ready", "extra", "", "dataset-initializer", "succeeded")),
			},
			want: v1alpha1.DispatchStatus{
				Steps:     steps("dataset-initializer", "Succeeded", "model-initializer", "Running", "trainer", "Waiting", "extra", "Waiting"),
				StartTime: at(t, created),
			},
		},
		"EarlierAttempt": {
			reason:      "what the status says is of another copy, perhaps on another worker",
			observation: observation{job: testJob("origin"), copy: testCopy("origin", "2"), dispatch: testDispatch(shows(t, 1))},
		},
		"JobSetUnknown": {
			reason:      "JobSets cannot be read now, and what was said of this attempt holds",
			observation: observation{job: testJob("origin"), copy: testCopy("origin", "2", reporting("node", "ready")), dispatch: testDispatch(shows(t, 2))},
			want:        v1alpha1.DispatchStatus{Steps: steps("trainer", "Running"), Restarts: 3, StartTime: at(t, created)},
		},
		"Restarted": {
			reason: "a restart alone is worth a write",
			observation: observation{
				job: testJob("origin"), copy: testCopy("origin", "2", reporting("node", "ready")), dispatch: testDispatch(shows(t, 2)),
				course: &course{restarts: 4, startTime: at(t, created)},
			},
			want:     v1alpha1.DispatchStatus{Steps: steps("trainer", "Running"), Restarts: 4, StartTime: at(t, created)},
			progress: true,
		},
		"ResumedUnseen": {
			reason: "the worker's Kueue has stopped the copy and started it again",
			observation: observation{
				job: testJob("origin"), copy: testCopy("origin", "2", reporting("node", "ready")), dispatch: testDispatch(shows(t, 2)),
				course: &course{restarts: 3, startTime: at(t, resumed)},
			},
			want:     v1alpha1.DispatchStatus{Steps: steps("trainer", "Running"), Restarts: 4, Stops: 1, StartTime: at(t, resumed)},
			progress: true,
		},
		"ResumedSeen": {
			reason: "the stop was counted when it was seen",
			observation: observation{
				job: testJob("origin"), copy: testCopy("origin", "2", reporting("node", "ready")), dispatch: testDispatch(shows(t, 2), stopped),
				course: &course{restarts: 3, startTime: at(t, resumed)},
			},
			want:     v1alpha1.DispatchStatus{Steps: steps("trainer", "Running"), Restarts: 4, Stops: 1, StartTime: at(t, resumed)},
			progress: true,
		},
		"Suspended": {
			reason: "a suspended job has no start, and had one",
			observation: observation{
				job: testJob("origin"), copy: testCopy("origin", "2", reporting("node", "suspended")), dispatch: testDispatch(shows(t, 2)),
				course: &course{restarts: 3},
			},
			want:     v1alpha1.DispatchStatus{Steps: steps("trainer", "Waiting"), Restarts: 4, Stops: 1},
			progress: true,
		},
		"Complete": {
			reason: "MPI's workers are still there when the launcher has succeeded",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(inRuntimeOrder),
				copy: testCopy("origin", "2", endedAt("Complete", over), reporting("node", "ready", "launcher", "succeeded")),
			},
			want: v1alpha1.DispatchStatus{
				Steps: steps("launcher", "Succeeded", "trainer", "Succeeded"), CompletionTime: at(t, over),
			},
		},
		"CompleteWithoutAStep": {
			reason: "with successPolicy Any it is not needed, and waits for nothing any more",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(inRuntimeOrder),
				copy: testCopy("origin", "2", endedAt("Complete", over), reporting("node", "", "launcher", "succeeded")),
			},
			want: v1alpha1.DispatchStatus{
				Steps: steps("launcher", "Succeeded", "trainer", "Stopped"), CompletionTime: at(t, over),
			},
		},
		"Failed": {
			reason: "what ran ends with the job, and what waited never ran",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(inRuntimeOrder),
				copy: testCopy("origin", "2", endedAt("Failed", over),
					reporting("node", "", "model-initializer", "ready", "dataset-initializer", "failed")),
			},
			want: v1alpha1.DispatchStatus{
				Steps:          steps("dataset-initializer", "Failed", "model-initializer", "Failed", "trainer", "Waiting"),
				CompletionTime: at(t, over),
			},
		},
		"HubHasTheLastWord": {
			reason: "the end is final, also when the copy says something else by now",
			observation: observation{
				job:      testJob("origin", endedAt("Complete", over), reporting("node", "succeeded")),
				copy:     testCopy("origin", "2", endedAt("Failed", resumed), reporting("node", "failed")),
				dispatch: testDispatch(shows(t, 2)),
			},
			want: v1alpha1.DispatchStatus{
				Steps: steps("trainer", "Succeeded"), Restarts: 3, StartTime: at(t, created), CompletionTime: at(t, over),
			},
			progress: true,
		},
		"CopyGone": {
			reason:      "the process ended between the two writes of the end, and the copy is gone",
			observation: observation{job: testJob("origin", endedAt("Failed", over), reporting("node", "failed")), dispatch: testDispatch()},
			want:        v1alpha1.DispatchStatus{Steps: steps("trainer", "Failed"), CompletionTime: at(t, over)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := *test.observation.dispatch.Status.DeepCopy()
			test.observation.showProgress(&status)
			got := v1alpha1.DispatchStatus{
				Steps: status.Steps, Restarts: status.Restarts, Stops: status.Stops, StartTime: status.StartTime, CompletionTime: status.CompletionTime,
			}
			check.Diff(t, test.want, got, test.reason)
			check.Equal(t, test.progress, test.observation.dispatch.WasCopied() && test.observation.hasProgressed(),
				"hasProgressed(): %s", test.reason)
		})
	}
}

// If a worker reports something that is no status of a TrainJob, there are no steps, and nothing fails.
func TestUnreadableJobsStatus(t *testing.T) {
	for name, jobsStatus := range map[string]any{"Text": "x", "Counter": []any{map[string]any{"name": "node", "ready": "one"}}, "None": nil} {
		t.Run(name, func(t *testing.T) {
			copy := testCopy("origin", "2")
			copy.Object["status"] = map[string]any{"jobsStatus": jobsStatus}
			status := v1alpha1.DispatchStatus{}
			f := observation{job: testJob("origin"), copy: copy, dispatch: testDispatch()}
			f.showProgress(&status)
			if len(status.Steps) > 0 {
				t.Errorf("steps %+v", status.Steps)
			}
		})
	}
}
