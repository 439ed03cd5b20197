// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestAttemptsOnWorkers follows a node over three attempts, whose workers have clocks that do not agree with the hub's. No
// pod is read twice, although the pods of an attempt are still there when those of the next one come.
func TestAttemptsOnWorkers(t *testing.T) {
	pod := func(name, worker string, attempt, age int) *corev1.Pod {
		pod := testPod{name: name, attempt: attempt, age: age, started: true}.pod()
		pod.Labels["jobset.sigs.k8s.io/jobset-uid"] = "set-" + worker
		pod.Labels[v1alpha1.LabelCluster] = worker
		return pod
	}
	restarted := pod("a", "east", 1, 100)
	later, back := pod("b", "west", 0, -3600), pod("c", "north", 0, 50)
	job := testSnapshot(t, &trainer.TrainJob{}).job
	var last *run
	for _, step := range []struct {
		why  string
		pods []*corev1.Pod
		want *corev1.Pod
		text string
	}{
		{"the first attempt, in its second try", []*corev1.Pod{restarted}, restarted, ""},
		{"a clock that is behind, and no restart yet", []*corev1.Pod{restarted, later}, later, `TrainJob "job" was started again on worker "west"`},
		{"the earlier attempt is not read again", []*corev1.Pod{restarted, later}, nil, ""},
		{"the third attempt", []*corev1.Pod{restarted, later, back}, back, `TrainJob "job" was started again on worker "north"`},
		{"no earlier one is read again", []*corev1.Pod{restarted, later, back}, nil, ""},
	} {
		s, err := newSnapshotElsewhere(job, step.pods, epoch)
		check.Must(t, err)
		next, err := nextRun(s, trainerStep, 0, "", last)
		check.Must(t, err)
		if next == nil || step.want == nil {
			check.Equal(t, step.want == nil, next == nil, "%s", step.why)
			continue
		}
		check.Equal(t, step.want.Name, next.pod.Name, "%s", step.why)
		if last != nil {
			text, all := whyAgain(s, trainerStep, 0, last, next)
			check.Equal(t, step.text, text, "%s", step.why)
			check.Equal(t, true, all, "it has happened to all nodes")
		}
		last = next
	}
}

// TestHiddenPods is about a worker that has reported a running step, and whose pods are not shown: it does not answer.
func TestHiddenPods(t *testing.T) {
	running := trainer.JobStatus{Name: "node", Active: ptr.To[int32](1), Ready: ptr.To[int32](1)}
	const where = `it is on worker "west"`
	tests := map[string]struct {
		reason string
		status trainer.JobStatus
		placed bool
		step   *step
		want   string
	}{
		"Job":     {reason: "no step is asked for", status: running, placed: true, want: `the pods of TrainJob "job" cannot be seen now: ` + where},
		"Step":    {reason: "a log or a command", status: running, placed: true, step: &trainerStep, want: `the pod of step trainer, node 0, of TrainJob "job" cannot be seen now: ` + where},
		"NoPods":  {reason: "nothing runs yet", status: trainer.JobStatus{Name: "node"}, placed: true, want: `TrainJob "job" has no pods yet: ` + where},
		"Evicted": {reason: "the status is of an attempt that has ended", status: running, want: `TrainJob "job" has no pods yet: ` + where},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := testSnapshot(t, &trainer.TrainJob{Status: trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{tc.status}}}).job
			s, err := newSnapshotElsewhere(job, nil, epoch)
			check.Must(t, err)
			s.where, s.placed = where, tc.placed
			check.Equal(t, tc.want, whyNoPod(s, tc.step, 0), "%s", tc.reason)
		})
	}
}
