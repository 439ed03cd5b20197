// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// saving annotates a job with where it saves its checkpoints.
func saving(where string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { job.Annotations = map[string]string{v1alpha1.AnnotationCheckpoint: where} }
}

// end ends the attempt of a job as mirror would. ran is what its process reported last, nil if no pod of it ran.
func (s *scene) end(t *testing.T, d *v1alpha1.Dispatch, outcome v1alpha1.Outcome, ran *v1alpha1.Progress) {
	t.Helper()
	writer := records.Writer{Hub: s.Hub.Admin, Clock: s.Clock}
	check.Must(t, writer.EndCopy(t.Context(), d, outcome, "by hand", func(status *v1alpha1.DispatchStatus) {
		if ran != nil {
			status.FirstRunningTime, status.Progress = ptr.To(metav1.NewTime(s.Clock.Now())), ran
		}
	}))
	s.tell(s.Dispatch(t, d.Name))
}

// The next attempt is told where the job ran last and what it reached, although attempts come to nothing and managers
// change in between.
func TestNextAttemptKnows(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Checkpoint: &v1alpha1.Checkpointing{Grace: &metav1.Duration{Duration: 90500 * time.Millisecond}}})
	job := s.Submit(t, "job", saving("s3://ckpt/$(NAMESPACE)/$(UID)"))
	d, _ := s.reconcile(t, "job")
	want := &v1alpha1.Checkpoint{
		URI: fmt.Sprintf("s3://ckpt/%s/%s", s.Namespace, job.UID), Grace: &v1alpha1.PodGrace{Seconds: 91, PodSets: []string{"node"}},
	}
	check.Diff(t, want, d.Spec.Checkpoint, "what the first attempt is told")
	check.Diff(t, ptr.To(int64(91)), d.Spec.PodSets[0].TerminationGracePeriodSeconds, "the grace period that counts for preemption")
	s.tell(d)

	first := d.Spec.Cluster
	s.end(t, d, v1alpha1.OutcomeDrained, &v1alpha1.Progress{
		ProgressPercentage: ptr.To(int32(42)), Metrics: []v1alpha1.Metric{{Name: v1alpha1.MetricCheckpoint, Value: "1200"}},
	})
	want.PreviousCluster = first
	want.LastProgress = `{"progressPercentage":42,"metrics":[{"name":"checkpoint_step","value":"1200"}]}`
	for _, outcome := range []v1alpha1.Outcome{v1alpha1.OutcomeRejected, v1alpha1.OutcomeNameConflict, v1alpha1.OutcomeRejected} {
		s.restart(t)
		d, _ = s.reconcile(t, "job")
		if d.Spec.Cluster == "" { // Both workers have refused it.
			s.Clock.Step(time.Hour)
			d, _ = s.reconcile(t, "job")
		}
		check.Diff(t, want, d.Spec.Checkpoint, fmt.Sprintf("what attempt %d is told", d.Spec.Attempt))
		s.tell(d)
		s.end(t, d, outcome, nil)
	}
	s.Clock.Step(time.Hour)
	d, _ = s.reconcile(t, "job")
	check.Equal(t, int32(5), d.Spec.Attempt, "the attempt")
	check.Diff(t, want, d.Spec.Checkpoint, "what the attempt after three refusals is told")
}

// Without checkpoint in the policy an attempt is told nothing. A grace period of the job stays.
func TestNoCheckpointInThePolicy(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job", saving("s3://ckpt"))
	d, _ := s.reconcile(t, "job")
	if d.Spec.Cluster == "" || d.Spec.Checkpoint != nil || d.Spec.PodSets[0].TerminationGracePeriodSeconds != nil {
		t.Errorf("the Dispatch says %+v", d.Spec)
	}
}

// A bad annotation is told on the job's Dispatch, where no webhook has refused it.
func TestBadCheckpoint(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Checkpoint: &v1alpha1.Checkpointing{}})
	s.Submit(t, "job", saving("/mnt/ckpt"))
	d := s.expect(t, "job", v1alpha1.ReasonInvalidCheckpoint)
	if message := d.Status.Conditions[0].Message; !strings.HasPrefix(message, "annotation trainyard.dev/checkpoint: must be a URI such as s3://") {
		t.Errorf("the message is %q", message)
	}
}

// The user learns at creation for what there is no place, and that a policy says nothing about checkpoints.
func TestReviewOfCheckpoints(t *testing.T) {
	s := newScene(t)
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Checkpoint: &v1alpha1.Checkpointing{}})
	warnings := func(variables int) string {
		job := stage.NewTrainJob(s.Namespace, "job", stage.Managed, saving("s3://ckpt"))
		job.Spec.Trainer.Env = nil
		for i := range variables {
			job.Spec.Trainer.Env = append(job.Spec.Trainer.Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i), Value: "x"})
		}
		faults, warnings, err := NewReviewer(s.reconciler, nil).Review(t.Context(), job)
		check.Must(t, err)
		check.Equal(t, "", textOf(faults), "faults")
		return strings.Join(warnings, "\n")
	}
	check.Equal(t, "", warnings(122), "warnings of a job whose variables have a place")
	check.Equal(t, fmt.Sprintf("spec.trainer.env: has 123 variables, and with more than 122 there is no place for all variables that "+
		"DispatchPolicy %s gives the copy", policy.Name), warnings(123), "warnings")
	policy.Spec.Checkpoint = nil
	check.Must(t, s.Hub.Admin.Update(t.Context(), policy))
	check.Equal(t, fmt.Sprintf("metadata.annotations[trainyard.dev/checkpoint]: has no effect, because DispatchPolicy %s, which applies to the job, "+
		"has no spec.checkpoint", policy.Name), warnings(0), "warnings of a job whose policy says nothing")
}

// A job whose checkpoint is in a volume of its worker stays there, and is held if the worker is lost.
func TestJobStaysWithItsClaim(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Failover: v1alpha1.FailoverImmediate, Checkpoint: &v1alpha1.Checkpointing{}})
	s.Submit(t, "job", saving("pvc:ckpt"))
	d, _ := s.reconcile(t, "job")
	check.Equal(t, v1alpha1.FailoverHold, d.Spec.Failover, "failover of a job that could go on nowhere else")
	home := d.Spec.Cluster
	s.tell(d)
	d.Status.Cluster, d.Status.Attempt, d.Status.FirstRunningTime = home, 1, ptr.To(metav1.NewTime(s.Clock.Now()))
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	answer := s.elsewhere(t, s.Dispatch(t, "job"))
	check.Equal(t, v1alpha1.ReasonCheckpointElsewhere, answer.Reason, "why a drain does not move the job: %s", answer.Message)

	s.end(t, s.Dispatch(t, "job"), v1alpha1.OutcomePreempted, &v1alpha1.Progress{})
	s.restart(t)
	d, _ = s.reconcile(t, "job")
	check.Equal(t, home, d.Spec.Cluster, "the worker of the second attempt")
	s.tell(d)
	s.end(t, d, v1alpha1.OutcomeRejected, nil)
	d = s.expect(t, "job", v1alpha1.ReasonRejected)
	for _, line := range d.Status.Explanation {
		want := v1alpha1.ReasonCheckpointElsewhere
		if line.Cluster == home {
			want = string(v1alpha1.OutcomeRejected)
		}
		check.Equal(t, want, line.Reason, "why the job is not on %s: %s", line.Cluster, line.Message)
	}

	job := s.TrainJob(t, "job")
	job.Annotations = nil
	check.Must(t, s.Hub.Admin.Update(t.Context(), job))
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster == "" || d.Spec.Cluster == home {
		t.Errorf("the job whose user has given the checkpoint up is on %q, want it elsewhere", d.Spec.Cluster)
	}
}
