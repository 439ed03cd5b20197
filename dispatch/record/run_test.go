// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// attempts ends attempts on workers, one after the other. An attempt with a progress ran.
type attempts struct{ d *v1alpha1.Dispatch }

func (a *attempts) end(worker v1alpha1.ClusterName, outcome v1alpha1.Outcome, ran *v1alpha1.Progress) {
	d, now := a.d, time.Unix(int64(a.d.Spec.Attempt)*1000, 0)
	d.Spec.Attempt, d.Spec.Cluster = d.Spec.Attempt+1, worker
	d.Status.Attempt, d.Status.Progress = d.Spec.Attempt, ran
	if ran != nil {
		d.Status.FirstRunningTime = &metav1.Time{Time: now}
	}
	run := RunOf(&d.Status, now)
	End(&d.Status, d, outcome, "", now)
	run.AddTo(&d.Status)
}

func reported(percentage int32) *v1alpha1.Progress {
	return &v1alpha1.Progress{
		ProgressPercentage: ptr.To(percentage), Metrics: []v1alpha1.Metric{{Name: v1alpha1.MetricCheckpoint, Value: "7"}},
	}
}

// However many attempts come to nothing, the next one knows where the job ran last.
func TestLastRun(t *testing.T) {
	a := attempts{&v1alpha1.Dispatch{}}
	check.Equal(t, v1alpha1.ClusterName(""), RanOn(a.d), "a job without attempts ran on")
	a.end("west", v1alpha1.OutcomeRejected, nil)
	if LastRun(a.d) != nil {
		t.Error("a job that was refused has run")
	}
	a.end("north", v1alpha1.OutcomePreempted, reported(10))
	a.end("east", v1alpha1.OutcomeDrained, reported(40))
	for range 3 * historyLimit {
		a.end("west", v1alpha1.OutcomeRejected, nil)
	}
	history := a.d.Status.History
	if last := LastRun(a.d); last == nil || last.Attempt != 3 || last.Cluster != "east" {
		t.Errorf("the job ran last in %+v, want attempt 3 on east", last)
	} else {
		check.Diff(t, reported(40), last.Progress, "what attempt 3 reported")
	}
	if len(history) != historyLimit || history[0].Attempt != 3 || history[historyLimit-1].Attempt != 3*historyLimit+3 {
		t.Errorf("the history is %+v, want attempt 3 and the last 15", history)
	}
	a.end("west", v1alpha1.OutcomeDrained, reported(60))
	check.Equal(t, v1alpha1.ClusterName("west"), LastRun(a.d).Cluster, "the job ran last on")
	check.Diff(t, &v1alpha1.Progress{ProgressPercentage: ptr.To(int32(40))}, a.d.Status.History[0].Progress, "an older attempt keeps only its percentage")
	a.end("west", v1alpha1.OutcomeRejected, nil)
	if first := a.d.Status.History[0].Attempt; first == 3 {
		t.Error("attempt 3 stays though a later one ran")
	}
}

func TestRunOf(t *testing.T) {
	began, now := metav1.Unix(1000, 0), time.Unix(2000, 0)
	steps := func(name string, state v1alpha1.StepState) []v1alpha1.Step {
		return []v1alpha1.Step{{Name: name, State: state}}
	}
	for name, test := range map[string]struct {
		reason string
		status v1alpha1.DispatchStatus
		want   *metav1.Time
	}{
		"Nothing":     {reason: "no pods", status: v1alpha1.DispatchStatus{StartTime: &began}},
		"Pending":     {reason: "the pods never were ready", status: v1alpha1.DispatchStatus{StartTime: &began, Steps: steps("trainer", v1alpha1.StepWaiting)}},
		"Initializer": {reason: "an initializer saves no checkpoint", status: v1alpha1.DispatchStatus{Steps: steps("dataset-initializer", v1alpha1.StepSucceeded)}},
		"Recorded":    {reason: "it was seen", status: v1alpha1.DispatchStatus{FirstRunningTime: &began, Steps: steps("trainer", v1alpha1.StepWaiting)}, want: &began},
		"OlderRelease": {
			reason: "which recorded no firstRunningTime", want: &began,
			status: v1alpha1.DispatchStatus{StartTime: &began, Steps: steps("trainer", v1alpha1.StepRunning)},
		},
		"NoTimes": {
			reason: "that it ran counts more than when", want: &metav1.Time{Time: now},
			status: v1alpha1.DispatchStatus{Steps: steps("trainer", v1alpha1.StepFailed)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, test.want, RunOf(&test.status, now).First, "RunOf() "+test.reason)
		})
	}
}

// Where a job runs now counts more than where it ran.
func TestRanOn(t *testing.T) {
	a := attempts{&v1alpha1.Dispatch{}}
	a.end("east", v1alpha1.OutcomeDrained, reported(40))
	a.d.Spec.Attempt, a.d.Spec.Cluster = 2, "west"
	SetCopied(&a.d.Status, a.d, time.Unix(3000, 0))
	check.Equal(t, v1alpha1.ClusterName("east"), RanOn(a.d), "a job whose pods are to come ran on")
	a.d.Status.FirstRunningTime = &metav1.Time{Time: time.Unix(4000, 0)}
	check.Equal(t, v1alpha1.ClusterName("west"), RanOn(a.d), "a job that runs ran on")
}

func TestUnsavedSince(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return ptr.To(metav1.Unix(seconds, 0)) }
	d := &v1alpha1.Dispatch{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(10)}, Spec: v1alpha1.DispatchSpec{Attempt: 2}}
	d.Status.Attempt, d.Status.FirstRunningTime = 1, at(20)
	check.Equal(t, int64(10), UnsavedSince(d).Unix(), "what an earlier attempt did is no work of this one: since")
	d.Status.Attempt, d.Status.StartTime = 2, at(15)
	check.Equal(t, int64(20), UnsavedSince(d).Unix(), "it ran since")
	d.Status.LastCheckpoint = &v1alpha1.SavedCheckpoint{Name: "7", Time: *at(30)}
	check.Equal(t, int64(30), UnsavedSince(d).Unix(), "it has saved, and loses since")
}
