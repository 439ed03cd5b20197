// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"errors"
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/health"
	"github.com/trainyard/trainyard/test/check"
)

// extended returns an extended condition with generation 7.
func extended(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message,
		ObservedGeneration: 7, LastTransitionTime: t0Meta,
	}
}

func generation7(j *trainer.TrainJob) { j.Generation = 7 }

// unpullable returns a pod of the trainer whose image does not exist.
func unpullable() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "llm-node-0-0-abcde", Namespace: "team-a", Labels: map[string]string{
			jobsetv1alpha2.JobSetNameKey: "llm", jobsetv1alpha2.ReplicatedJobNameKey: "node",
			"batch.kubernetes.io/job-completion-index": "0",
		}},
		Spec: corev1.PodSpec{NodeName: "gpu-1", Containers: []corev1.Container{{Name: "node", Image: "example.com/llm:typo"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "node", Image: "example.com/llm:typo",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "example.com/llm:typo"`,
			}},
		}}},
	}
}

// TestExtendedConditions replays every state of a live job and every end. It checks that no condition is written twice.
func TestExtendedConditions(t *testing.T) {
	created := extended("ResourcesCreated", "True", "ResourcesCreated", "the JobSet and what it needs exist")
	denied := &problem{reason: ReasonApplyFailed, action: "ApplyJobSet", err: fmt.Errorf("apply JobSet of TrainJob team-a/llm: %w",
		apierrors.NewForbidden(schema.GroupResource{Resource: "jobsets"}, "llm", errors.New("exceeded quota: jobsets")))}
	conflict := fmt.Errorf("apply JobSet: %w", apierrors.NewConflict(schema.GroupResource{Resource: "jobsets"}, "llm", errors.New("newer")))
	trainerStarted := extended("Started", "True", "Trainer", "the current step is trainer")
	pull, _ := health.Diagnose(health.Input{Pods: []*corev1.Pod{unpullable()}, Since: t0}, health.DefaultLimits(), t0)
	if pull == nil {
		t.Fatal("package health finds no trouble with a pod whose image cannot be pulled")
	}
	cases := map[string]struct {
		reason   string
		job      *trainer.TrainJob
		jobSet   *jobsetv1alpha2.JobSet
		reported *trainer.TrainJobStatus
		pods     []*corev1.Pod
		err      error
		want     []metav1.Condition
	}{
		"Foreign":  {reason: "Nothing is said about it.", job: job(managedBy("kueue.x-k8s.io/multikueue"))},
		"Deleting": {reason: "Nothing is said about it.", job: job(deleting)},
		"Created": {
			reason: "The JobSet has just been made.",
			job:    job(),
			want:   []metav1.Condition{extended("Started", "False", "WaitingForResources", "waiting for the JobSet"), created},
		},
		"Created/Refused": {
			reason: "The API server's words are on the object.",
			job:    job(), err: denied,
			want: []metav1.Condition{
				extended("Started", "False", "WaitingForResources", "waiting for the JobSet"),
				extended("ResourcesCreated", "False", "ApplyFailed",
					`apply JobSet of TrainJob team-a/llm: jobsets "llm" is forbidden: exceeded quota: jobsets`),
			},
		},
		"Created/Conflict": {
			reason: "What passes by itself is not worth a condition.",
			job:    job(), err: conflict,
			want: []metav1.Condition{extended("Started", "False", "WaitingForResources", "waiting for the JobSet")},
		},
		"Blocked": {
			reason: "It says who has the name.",
			job:    job(), jobSet: jobSet("", false),
			want: []metav1.Condition{
				extended("Started", "False", "WaitingForResources", "waiting for the JobSet"),
				extended("ResourcesCreated", "False", "JobSetConflict",
					"waiting for JobSet team-a/llm to be deleted: it exists and is not this TrainJob's"),
			},
		},
		"Suspended": {
			reason: "A job that had started has to start again.",
			job:    job(suspend, conditions(suspended, trainerStarted)), jobSet: jobSet("uid-1", true),
			want: []metav1.Condition{suspended, extended("Started", "False", "Suspended", "the TrainJob is suspended"), created},
		},
		"Starting": {
			reason: "It says which pods it waits for.",
			job:    job(), jobSet: jobSet("uid-1", false), reported: reports(steps("dataset-initializer", 0, "node", 0)),
			want: []metav1.Condition{
				extended("Started", "False", "WaitingForPods", "waiting for the pods of dataset-initializer to be ready"), created,
			},
		},
		"Initializing": {
			reason: "The reason is the current step.",
			job:    job(), jobSet: jobSet("uid-1", false), reported: reports(steps("model-initializer", 1, "node", 0)),
			want: []metav1.Condition{extended("Started", "True", "ModelInitializer", "the current step is model-initializer"), created},
		},
		"Running": {
			reason: "The reason is the current step.",
			job:    job(), jobSet: jobSet("uid-1", false), reported: reports(jobsStatus(1)),
			want: []metav1.Condition{trainerStarted, created},
		},
		"Running/NotReadyForAMoment": {
			reason: "Started is not taken back by a pod that is not ready.",
			job:    job(conditions(trainerStarted, created)), jobSet: jobSet("uid-1", false), reported: reports(jobsStatus(0)),
			want: []metav1.Condition{trainerStarted, created},
		},
		"Restarting": {
			reason: "A restart begins anew.",
			job:    job(conditions(trainerStarted, created)), jobSet: restarting(jobSet("uid-1", false)), reported: reports(jobsStatus(0)),
			want: []metav1.Condition{extended("Started", "False", "Restarting", "the JobSet is creating its Jobs again"), created},
		},
		"Stalled": {
			reason: "Pod, node and cause are named.",
			job:    job(), jobSet: jobSet("uid-1", false), reported: reports(jobsStatus(0)), pods: []*corev1.Pod{unpullable()},
			want: []metav1.Condition{
				extended("Started", "False", "WaitingForPods", "waiting for the pods of trainer to be ready"),
				extended("Stalled", "True", pull.Reason, pull.Message), created,
			},
		},
		"Stalled/Suspended": {
			reason: "A job that does not run is not kept from it.",
			job:    job(suspend, conditions(suspended, extended("Stalled", "True", pull.Reason, pull.Message))), jobSet: jobSet("uid-1", true),
			want: []metav1.Condition{
				suspended, extended("Stalled", "False", "NotRunning", "the job does not run"),
				extended("Started", "False", "Suspended", "the TrainJob is suspended"), created,
			},
		},
		"Stalled/Over": {
			reason: "It is cleared when it is over.",
			job:    job(conditions(extended("Stalled", "True", pull.Reason, pull.Message))), jobSet: jobSet("uid-1", false),
			reported: reports(jobsStatus(1)),
			want: []metav1.Condition{
				extended("Stalled", "False", "Recovered", "no trouble of the job is known any more"), trainerStarted, created,
			},
		},
		"Complete": {
			reason: "Started stays as it was last.",
			job:    job(conditions(trainerStarted, created)), jobSet: jobSet("uid-1", false), reported: reports(jobsStatus(0), complete),
			want: []metav1.Condition{trainerStarted, created, complete},
		},
		"Failed/UnknownKindOfRuntime": {
			reason: "Both conditions say why.",
			job:    job(kind("ServingRuntime")),
			want: []metav1.Condition{
				{
					Type: "Failed", Status: "True", Reason: "TrainingRuntimeNotSupported", LastTransitionTime: t0Meta,
					Message: unsupportedMessage(observation{trainJob: job(kind("ServingRuntime")), runtimeKinds: supported}),
				},
				extended("ResourcesCreated", "False", "RuntimeNotSupported",
					unsupportedMessage(observation{trainJob: job(kind("ServingRuntime")), runtimeKinds: supported})),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			generation7(tc.job)
			f := observation{trainJob: tc.job, jobSet: tc.jobSet, reported: tc.reported, health: health.Input{Pods: tc.pods}, runtimeKinds: supported}
			first := decideExtended(f, tc.err, t0)
			check.Diff(t, tc.want, first.Conditions, fmt.Sprintf("%s\nconditions", tc.reason))
			f.trainJob = tc.job.DeepCopy()
			f.trainJob.Status = first
			check.Diff(t, first, decideExtended(f, tc.err, t0.Add(time.Second)), "the same again is not the same status")
		})
	}
}

// decideExtended does what Reconcile does between its reads and its writes.
func decideExtended(f observation, err error, now time.Time) trainer.TrainJobStatus {
	d := decide(f, rules{extendedConditions: true, limits: health.DefaultLimits()}, now)
	if isLive(d.state) {
		setResourcesCreated(&d.status, f, d.state, err, now)
	}
	return d.status
}

// TestFailureNamesItsCause: the JobSet says which of its Jobs failed. The pods say why.
func TestFailureNamesItsCause(t *testing.T) {
	pod := unpullable()
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "node", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "OOMKilled", FinishedAt: t0Meta,
		}},
	}}}
	f := observation{
		trainJob: job(), jobSet: jobSet("uid-1", false), reported: reports(jobsStatus(0), failed),
		health: health.Input{Pods: []*corev1.Pod{pod}}, runtimeKinds: supported,
	}
	cause := health.Cause(f.health.Pods)
	if cause == "" {
		t.Fatal("package health does not know why a pod that was killed for its memory has failed")
	}
	want := failed.Message + ": " + cause
	plain := decide(f, rules{}, t0)
	check.Equal(t, failed.Message, endOf(&plain.status).Message,
		"the condition of the Kubeflow Trainer: want the JobSet's words only")
	check.Equal(t, want, plain.failure, "failure for the Event")
	withCause := decide(f, rules{extendedConditions: true}, t0)
	check.Equal(t, want, endOf(&withCause.status).Message, "extended condition")
}

// completedAt returns the status of a JobSet that completed at a time.
func completedAt(now time.Time) jobsetv1alpha2.JobSetStatus {
	status := jobSetCompleted()
	status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
	return status
}

// TestTTLDeletesJobThatIsOver: only the TTL causes the next pass. The TTL of a running job does not pass.
func TestTTLDeletesJobThatIsOver(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	over := e.createJob(t, ns, "over", ttl("3"))
	late := e.createJob(t, ns, "late", ttl("3600"))
	running := e.createJob(t, ns, "running", ttl("0"))
	kept := e.createJob(t, ns, "kept")
	for _, j := range []*trainer.TrainJob{over, late, kept} {
		e.awaitJobSet(t, j)
		e.setJobSetStatus(t, j, completedAt(e.clock.Now()))
		e.awaitConditions(t, j, complete)
	}
	e.awaitJobSet(t, running)
	e.clock.SetTime(e.clock.Now().Add(5 * time.Second))
	eventually(t, "deletion", func(g gomega.Gomega) {
		// No garbage collector runs here, so the foreground deletion never ends.
		err := e.Get(t.Context(), client.ObjectKeyFromObject(over), over)
		g.Expect(apierrors.IsNotFound(err) || !over.DeletionTimestamp.IsZero()).To(gomega.BeTrue())
	})
	for _, j := range []*trainer.TrainJob{late, running, kept} {
		e.touch(t, j)
	}
	e.fence(t, ns)
	for _, j := range []*trainer.TrainJob{late, running, kept} {
		if got := e.get(t, j); !got.DeletionTimestamp.IsZero() {
			t.Errorf("%s was deleted", j.Name)
		}
	}
}

// TestCopiesHaveNoTTL: a user of the worker annotates a copy. That does not make the job run again.
func TestCopiesHaveNoTTL(t *testing.T) {
	now := time.Unix(1000, 0)
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationTTL: "0"}}}
	job.Status.Conditions = []metav1.Condition{{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
	}}
	if due, limited := expiryOf(job); !limited || !due.Equal(now) {
		t.Errorf("a TrainJob of the cluster's own goes at %s, %t", due, limited)
	}
	job.Labels = map[string]string{v1alpha1.LabelHub: "hub"}
	if due, limited := expiryOf(job); limited {
		t.Errorf("a copy goes at %s, before its hub may have seen that it has ended", due)
	}
}
