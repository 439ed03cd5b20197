// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

func TestWhyNoLog(t *testing.T) {
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	tests := map[string]struct {
		reason string
		pod    corev1.Pod
		want   string
	}{
		"Gated": {
			reason: "who holds the pod back",
			pod: corev1.Pod{
				Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/quota"}}},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated},
				}},
			},
			want: "it is not scheduled before these gates are taken off it: example.com/quota",
		},
		"Unscheduled": {reason: "the scheduler has said nothing yet", want: "it is not scheduled yet"},
		"Creating": {
			reason: "the kubelet is at it",
			pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{Name: "node", State: waits("ContainerCreating", "")},
			}}},
			want: `container "node" waits on node "n": ContainerCreating`,
		},
		"Silent": {
			reason: "the kubelet has said nothing yet",
			pod:    corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, want: `it has not started on node "n"`,
		},
		"InitRuns": {
			reason: "an init container is at work, and has a log",
			pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "node", State: waits("PodInitializing", "")}},
			}},
			want: `init container "fetch" is running; its log: -c fetch`,
		},
		"SidecarRuns": {
			reason: "a sidecar that has started is not in the way",
			pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{
				InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "proxy", Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "node", State: waits("ErrImagePull", "no such image")}},
			}},
			want: `container "node" waits on node "n": ErrImagePull: no such image`,
		},
		"Evicted": {
			reason: "it never came to run",
			pod:    corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "disk is full"}},
			want:   "it has ended without having started (Evicted: disk is full)",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := whyNoLog(&tc.pod, "node"); got != tc.want {
				t.Errorf("%s:\nwant %s\ngot  %s", tc.reason, tc.want, got)
			}
		})
	}
}

func TestWhyNoPod(t *testing.T) {
	waiting := trainer.JobStatus{Name: "node"}
	failed := trainer.JobStatus{Name: "dataset-initializer", Failed: ptr.To[int32](1)}
	after := step{name: "trainer", replicatedJob: "node", waitsFor: []dependency{{step: "dataset-initializer"}}}
	condition := func(kind, status, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}}
	}
	tests := map[string]struct {
		reason string
		job    trainer.TrainJob
		step   *step
		want   string
	}{
		"NotBuilt": {
			reason: "nobody has built the JobSet", want: `TrainJob "job" has no JobSet yet, 60s after it was created; its events may say why`,
		},
		"BuildFailed": {
			reason: "the agent's condition says why",
			job:    trainer.TrainJob{Status: trainer.TrainJobStatus{Conditions: condition(conditionResourcesCreated, "False", "ApplyFailed", "quota")}},
			want:   `TrainJob "job" has no JobSet yet (ApplyFailed: quota)`,
		},
		"Queued": {
			reason: "Kueue suspends what it queues",
			job: trainer.TrainJob{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelLocalQueue: "research"}}, Spec: trainer.TrainJobSpec{Suspend: ptr.To(true)},
			},
			want: `is suspended, so it has no pods; it may be waiting in queue "research" of Kueue`,
		},
		"NeverStarted": {
			reason: "the job has failed before the step",
			job: trainer.TrainJob{Status: trainer.TrainJobStatus{
				Conditions: condition(trainer.TrainJobFailed, "True", "AllJobsFailed", "no data"), JobsStatus: []trainer.JobStatus{failed, waiting},
			}},
			step: &after, want: `TrainJob "job" has failed (AllJobsFailed: no data), and step trainer was never started`,
		},
		"Gone": {
			reason: "the pods were deleted",
			job:    trainer.TrainJob{Status: trainer.TrainJobStatus{Conditions: condition(trainer.TrainJobComplete, "True", "AllJobsCompleted", "")}},
			step:   &trainerStep, want: `TrainJob "job" is Complete, and the pod of step trainer, node 0, is gone, and its log with it`,
		},
		"Earlier": {
			reason: "another step comes first", job: trainer.TrainJob{Status: trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{{Name: "dataset-initializer"}, waiting}}},
			step: &after, want: `step trainer of TrainJob "job" has not started: it waits for dataset-initializer`,
		},
		"NotYet": {
			reason: "the Job controller is at it", job: trainer.TrainJob{Status: trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{waiting}}},
			step: &trainerStep, want: `step trainer of TrainJob "job" has no pod for node 0 yet`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := whyNoPod(testSnapshot(t, &tc.job), tc.step, 0); !strings.Contains(got, tc.want) {
				t.Errorf("%s:\nwant %s\ngot  %s", tc.reason, tc.want, got)
			}
		})
	}
}

func TestExplainNoJob(t *testing.T) {
	r := reader{job: types.NamespacedName{Namespace: "research", Name: "job"}, context: "prod"}
	got := r.explainNoJob(t.Context(), apierrors.NewUnauthorized("Unauthorized"))
	if want := `get TrainJob "job": Unauthorized: you must be logged in to the cluster (context "prod")`; got.Error() != want {
		t.Errorf("a token that has expired:\nwant %s\ngot  %s", want, got)
	}
}
