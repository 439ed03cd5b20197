// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"strconv"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/check"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testPod describes a pod of the trainer.
type testPod struct {
	name          string
	replicatedJob string // "node" if empty
	jobIndex      int
	index         int
	attempt       int
	age           int // the time of its creation, in seconds after the job's
	phase         corev1.PodPhase
	// restarts counts restarts of the container. started says whether it has been started.
	restarts int32
	started  bool
}

func (p testPod) pod() *corev1.Pod {
	replicatedJob := p.replicatedJob
	if replicatedJob == "" {
		replicatedJob = "node"
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.name, UID: types.UID(p.name), CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(p.age) * time.Second)),
			Labels: map[string]string{
				"jobset.sigs.k8s.io/replicatedjob-name":    replicatedJob,
				"jobset.sigs.k8s.io/job-index":             strconv.Itoa(p.jobIndex),
				"batch.kubernetes.io/job-completion-index": strconv.Itoa(p.index),
				"jobset.sigs.k8s.io/restart-attempt":       strconv.Itoa(p.attempt),
			},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "sidecar"}, {Name: "node"}}},
		Status: corev1.PodStatus{Phase: p.phase},
	}
	if p.started {
		status := corev1.ContainerStatus{Name: "node", RestartCount: p.restarts}
		status.State.Running = &corev1.ContainerStateRunning{}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	}
	return pod
}

// testSnapshot returns a snapshot of a job with these pods. The job was created at the epoch.
func testSnapshot(t *testing.T, job *trainer.TrainJob, pods ...testPod) *snapshot {
	t.Helper()
	job.Name, job.Namespace, job.CreationTimestamp = "job", "team", metav1.NewTime(epoch)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	check.Must(t, err)
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(trainjobs.GroupVersionKind)
	var all []*corev1.Pod
	for _, pod := range pods {
		all = append(all, pod.pod())
	}
	s, err := newSnapshot(u, nil, all, epoch.Add(time.Minute))
	check.Must(t, err)
	return s
}

var trainerStep = step{name: "trainer", replicatedJob: "node"}

func TestLatestPodOfNode(t *testing.T) {
	tests := map[string]struct {
		reason string
		step   step
		pods   []testPod
		node   int32
		want   string
	}{
		"Index": {
			reason: "the completion index is the node", node: 1, want: "b",
			pods: []testPod{{name: "a"}, {name: "b", index: 1}},
		},
		"Restart": {
			reason: "the JobSet's latest try counts before the time", want: "new",
			pods: []testPod{{name: "new", attempt: 10, age: 1}, {name: "old", attempt: 9, age: 2}},
		},
		"Retry": {
			reason: "the Job's latest pod", want: "second",
			pods: []testPod{{name: "first", age: 1, phase: corev1.PodFailed}, {name: "second", age: 2}},
		},
		"SameSecond": {
			reason: "of two of one second the one that has not failed", want: "a",
			pods: []testPod{{name: "a", phase: corev1.PodPending}, {name: "b", phase: corev1.PodFailed}},
		},
		"OtherStep": {
			reason: "pods of other steps have the same index", want: "mine",
			pods: []testPod{{name: "mine"}, {name: "theirs", replicatedJob: "launcher", age: 9}},
		},
		"Replicas": {
			reason: "nodes are counted over the Jobs of a step", node: 3, want: "d",
			pods: []testPod{{name: "a"}, {name: "b", index: 1}, {name: "c", jobIndex: 1}, {name: "d", jobIndex: 1, index: 1}},
		},
		"ReplicasWithoutPods": {
			reason: "a pod that is missing does not change the others' numbers", node: 2, want: "c",
			step: step{replicatedJob: "node", podsPerJob: 2, jobs: 2}, pods: []testPod{{name: "a"}, {name: "c", jobIndex: 1}},
		},
		"Predecessor": {
			reason: "a pod that is older than the job belongs to an earlier one of the name", want: "mine",
			pods: []testPod{{name: "mine"}, {name: "theirs", attempt: 3, age: -1}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.step.replicatedJob == "" {
				tc.step = trainerStep
			}
			pods := nodePods(testSnapshot(t, &trainer.TrainJob{}, tc.pods...), tc.step)[tc.node]
			if len(pods) == 0 || pods[len(pods)-1].Name != tc.want {
				t.Errorf("%s: want %s last in %v", tc.reason, tc.want, pods)
			}
		})
	}
}

func TestNextRun(t *testing.T) {
	first := testPod{name: "first", age: 1, started: true}
	failed := testPod{name: "first", age: 1, started: true, phase: corev1.PodFailed}
	tests := map[string]struct {
		reason string
		last   *testPod
		pods   []testPod
		want   string
	}{
		"Start":     {reason: "the latest try, not those before", pods: []testPod{failed, {name: "second", age: 2, started: true}}, want: "second"},
		"NotYet":    {reason: "what has not started has no log", pods: []testPod{failed, {name: "second", age: 2}}},
		"Same":      {reason: "a run is read once", last: &first, pods: []testPod{failed}},
		"Container": {reason: "a container that was restarted", last: &first, pods: []testPod{{name: "first", age: 1, started: true, restarts: 1}}, want: "first"},
		"Replaced":  {reason: "the next pod", last: &first, pods: []testPod{failed, {name: "second", age: 2, started: true}}, want: "second"},
		"NoneLeftOut": {
			reason: "what has come and gone while the log was read", last: &first, want: "second",
			pods: []testPod{{name: "third", age: 3, started: true}, {name: "second", age: 2, started: true, phase: corev1.PodFailed}, failed},
		},
		"Removed": {
			reason: "the pod was deleted, and an earlier one is left", last: &testPod{name: "second", age: 2, started: true}, pods: []testPod{failed},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var last *run
			if tc.last != nil {
				last = &run{pod: tc.last.pod(), container: "node", number: tc.last.restarts}
			}
			next, err := nextRun(testSnapshot(t, &trainer.TrainJob{}, tc.pods...), trainerStep, 0, "", last)
			check.Must(t, err)
			got := ""
			if next != nil {
				got = next.pod.Name
			}
			if got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}

func TestChooseStep(t *testing.T) {
	tests := map[string]struct {
		reason string
		steps  []step
		name   string
		want   string
		err    string
	}{
		"Trainer":  {reason: "the usual", steps: []step{{name: "dataset-initializer"}, {name: "trainer"}}, want: "trainer"},
		"Launcher": {reason: "MPI's output comes from it", steps: []step{{name: "trainer"}, {name: "launcher"}}, want: "launcher"},
		"Named":    {reason: "what was asked for", steps: []step{{name: "trainer"}, {name: "launcher"}}, name: "trainer", want: "trainer"},
		"OnlyOne":  {reason: "there is no other", steps: []step{{name: "server"}}, want: "server"},
		"Unclear": {
			reason: "nobody knows which", steps: []step{{name: "server"}, {name: "client"}},
			err: `TrainJob "job" has no step launcher or trainer: choose one with --step: server, client`,
		},
		"Unknown": {
			reason: "nothing is near", steps: []step{{name: "trainer"}}, name: "nonsense",
			err: `TrainJob "job" has no step "nonsense"; its steps are: trainer`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := chooseStep("job", tc.steps, tc.name)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got.name != tc.want || text != tc.err {
				t.Errorf("%s: want %q and error %q, got %q and %q", tc.reason, tc.want, tc.err, got.name, text)
			}
		})
	}
}
