// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

// remember makes the Dispatch say what the copy is told about the attempts before it.
func (s *scene) remember(t *testing.T, checkpoint *v1alpha1.Checkpoint) {
	t.Helper()
	d := s.dispatch(t)
	d.Spec.Attempt, d.Spec.Checkpoint = 2, checkpoint
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.restart()
}

// reports makes the copy say what its process has reported.
func (s *scene) reports(t *testing.T, percentage int64, checkpoint string) {
	t.Helper()
	copy := s.copy(t)
	must(t, unstructured.SetNestedMap(copy.Object, map[string]any{
		"progressPercentage": percentage, "lastUpdatedTime": endedAt,
		"metrics": []any{map[string]any{"name": v1alpha1.MetricCheckpoint, "value": checkpoint}},
	}, "status", "trainerStatus"))
	must(t, s.worker.Admin.Status().Update(t.Context(), copy))
	s.settle(t)
}

// variable is an item of spec.trainer.env.
func variable(name, value string) any { return map[string]any{"name": name, "value": value} }

// The manager stops between the decision and the copy. The next one makes the copy with what the Dispatch says. What is
// ours in the copy is no edit, and comes back if somebody removes it.
func TestCopyIsTold(t *testing.T) {
	s := newScene(t, setting{spec: map[string]any{"runtimePatches": []any{kueueEntry("user.dev/own", "h100")}}})
	s.remember(t, &v1alpha1.Checkpoint{
		URI: "s3://ckpt/1", PreviousCluster: "east", LastProgress: `{"progressPercentage":42}`,
		Grace: &v1alpha1.PodGrace{Seconds: 120, PodSets: []string{"node"}},
	})
	s.getUnderWay(t)
	wantTrainer := map[string]any{"env": []any{
		variable("TRAINYARD_JOB_UID", string(s.job(t).GetUID())), variable("TRAINYARD_ATTEMPT", "2"),
		variable("TRAINYARD_CHECKPOINT_URI", "s3://ckpt/1"), variable("TRAINYARD_PREVIOUS_CLUSTER", "east"),
		variable("TRAINYARD_LAST_PROGRESS", `{"progressPercentage":42}`), variable("TRAINYARD_CLUSTER", string(workerName)),
	}}
	wantPatches := []any{kueueEntry("user.dev/own", "h100"), map[string]any{
		"manager": "trainyard.dev/checkpoint", "trainingRuntimeSpec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"replicatedJobs": []any{map[string]any{"name": "node", "template": map[string]any{"spec": map[string]any{"template": map[string]any{
				"spec": map[string]any{"terminationGracePeriodSeconds": int64(120)},
			}}}}},
		}}},
	}}
	check.Diff(t, wantTrainer, specOf(s.copy(t))["trainer"], "spec.trainer of the copy")
	check.Diff(t, wantPatches, patchesWithoutTimes(s.copy(t)), "runtimePatches of the copy")

	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	s.edit(t, func(copy *unstructured.Unstructured) {
		delete(specOf(copy), "trainer")
		specOf(copy)["runtimePatches"] = specOf(copy)["runtimePatches"].([]any)[:1]
	})
	s.reconcile(t)
	s.reconcile(t)
	check.Diff(t, wantTrainer, specOf(s.copy(t))["trainer"], "spec.trainer of the copy, after somebody has removed it")
	check.Diff(t, wantPatches, patchesWithoutTimes(s.copy(t)), "runtimePatches of the copy, after somebody has edited it")
	generation := s.copy(t).GetGeneration()
	s.restart()
	s.reconcile(t)
	check.Equal(t, generation, s.copy(t).GetGeneration(), "what is ours was changed back: the generation of the copy")
}

// The API takes 128 variables. The job runs without those for which there is no place, and its owner learns which.
func TestVariablesWithoutAPlace(t *testing.T) {
	var env []any
	for i := range 127 {
		env = append(env, variable(fmt.Sprintf("E%d", i), "x"))
	}
	s := newScene(t, setting{spec: map[string]any{"trainer": map[string]any{"env": env}}})
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.remember(t, &v1alpha1.Checkpoint{URI: "s3://ckpt/1"})
	s.reconcile(t)
	want := append(slices.Clone(env), variable("TRAINYARD_JOB_UID", string(s.job(t).GetUID())))
	check.Diff(t, map[string]any{"env": want}, specOf(s.copy(t))["trainer"], "spec.trainer of the copy")
	s.expectEvent(t, recorder, `Warning VariablesLeftOut The copy on worker "worker" was created without the variables TRAINYARD_ATTEMPT, `+
		`TRAINYARD_CHECKPOINT_URI, TRAINYARD_CLUSTER: spec.trainer.env may have 128 variables; let the TrainJob have 3 fewer`)
}

// A report of progress costs the Dispatch no write. A report of another checkpoint does, if the policy asks for it.
func TestReportedCheckpoint(t *testing.T) {
	for name, test := range map[string]struct {
		checkpoint *v1alpha1.Checkpoint
		want       *v1alpha1.SavedCheckpoint
	}{
		"Asked":    {checkpoint: &v1alpha1.Checkpoint{}, want: &v1alpha1.SavedCheckpoint{Name: "1200"}},
		"NotAsked": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.remember(t, test.checkpoint)
			s.reconcile(t)
			s.trains(t, "ready", "")
			s.run(t)
			s.Clock.Step(time.Minute)
			ran := s.dispatch(t).Status.FirstRunningTime
			if ran == nil {
				t.Fatal("the Dispatch does not say that the copy runs")
			}
			s.reports(t, 10, "1200")
			seen := s.Clock.Now()
			s.reconcile(t)
			s.Clock.Step(statusWindow)
			s.reconcile(t)
			if test.want != nil {
				test.want.Time = metav1.NewTime(seen.Truncate(time.Second))
			}
			check.Diff(t, test.want, s.dispatch(t).Status.LastCheckpoint, "the last checkpoint")
			s.Clock.Step(time.Minute)
			s.reports(t, 20, "1200")
			s.expectQuiet(t, "the checkpoint is the same")
			s.restart()
			s.Clock.Step(time.Minute)
			s.expectQuiet(t, "a new process has nothing new to say")
		})
	}
}

// The history says since when an attempt ran and what it reported last, also if its manager has stopped after the copy
// was gone.
func TestHistoryKeepsTheRun(t *testing.T) {
	for name, restart := range map[string]bool{"SameManager": false, "NextManager": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.reconcile(t)
			s.trains(t, "ready", "")
			s.run(t)
			ran := s.dispatch(t).Status.FirstRunningTime
			s.Clock.Step(time.Minute)
			s.reports(t, 42, "1200")
			s.reconcile(t)
			s.Clock.Step(statusWindow)
			s.reconcile(t) // The TrainJob shows the report.
			s.evictAndCollect(t)
			if restart {
				s.restart()
			}
			for range 2 {
				s.reconcileGone(t)
			}
			s.expectPreempted(t)
			got := record.LastRun(s.dispatch(t))
			if got == nil || ran == nil {
				t.Fatalf("the history has no attempt that ran: %+v", s.dispatch(t).Status)
			}
			at, err := time.Parse(time.RFC3339, endedAt)
			must(t, err)
			check.Diff(t, ran, got.FirstRunningTime, "since when it ran")
			check.Diff(t, &v1alpha1.Progress{
				ProgressPercentage: ptr.To(int32(42)), LastUpdatedTime: &metav1.Time{Time: at},
				Metrics: []v1alpha1.Metric{{Name: v1alpha1.MetricCheckpoint, Value: "1200"}},
			}, got.Progress, "what it reported last")
			if status := s.dispatch(t).Status; status.FirstRunningTime != nil || status.Progress != nil {
				t.Errorf("the status still shows the attempt that is over: %+v", status)
			}
		})
	}
}
