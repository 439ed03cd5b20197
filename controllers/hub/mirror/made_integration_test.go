// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/check"
)

// makingLag is for how long the worker's controllers may be late, and endCheck how often the worker is asked meanwhile.
const (
	makingLag = 3 * time.Second
	endCheck  = time.Second
)

// Faults: a copy is deleted while it starts. The worker's controller makes its JobSet although the copy is gone. Later
// a Job of the JobSet is there that the garbage collector did not know when it deleted the JobSet. The attempt ends
// when none of them is there and none can come.
func TestEvictionOfACopyThatStarts(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	going := s.copy(t)
	s.evictAndCollect(t)
	for range 3 {
		s.expectLook(t, "a controller may still make the JobSet")
	}
	jobSet := s.createJobSet(t, going)
	s.expectLook(t, "the JobSet may make pods")
	s.collectJobSet(t, jobSet)
	job := s.createJob(t)
	for range 5 {
		s.expectLook(t, "the Job may make pods")
	}
	must(t, s.worker.Admin.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	for range 3 {
		s.expectLook(t, "the Job was there a moment ago")
	}
	s.reconcile(t)
	s.expectPreempted(t)
}

// Fault: the worker does not answer for a minute between two looks. That time counts little: something may have come and
// gone.
func TestEvictionCountsTheTimeOfLooks(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	s.evictAndCollect(t)
	s.expectLook(t, "the copy was there a moment ago")
	s.Clock.Step(time.Minute)
	for range 2 {
		s.expectLook(t, "nobody has looked for a minute")
	}
	s.reconcile(t)
	s.expectPreempted(t)
}

// Fault: the copy is deleted, and its JobSet is left as an orphan (kubectl delete --cascade=orphan). The attempt ends
// when its pods have ended.
func TestEvictionWaitsForAnOrphanedJobSet(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	jobSet := s.createJobSet(t, s.copy(t))
	pod := s.createPodOf(t, "orphan", string(jobSet.GetUID()))
	jobSet.SetOwnerReferences(nil)
	must(t, s.worker.Admin.Update(t.Context(), jobSet))
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	for range 5 {
		s.expectLook(t, "a pod of the JobSet runs")
	}
	s.deletePod(t, pod)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeCopyDeleted, "deleted on worker")
}

// A Job that has ended, or is suspended and has no JobSet, makes no pod.
func TestEvictionDoesNotWaitForAJobThatMakesNoPod(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	s.evictAndCollect(t)
	ended := s.createJob(t)
	now := metav1.Now()
	ended.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue}, {Type: batchv1.JobComplete, Status: corev1.ConditionTrue},
	}}
	must(t, s.worker.Admin.Status().Update(t.Context(), ended))
	s.createJob(t, func(job *batchv1.Job) { job.Name, job.Spec.Suspend = "suspended", ptr.To(true) })
	s.reconcileGone(t)
	s.expectPreempted(t)
}

// Fault: the worker's cache lags, and does not show a pod of a copy that is gone.
func TestEvictionAsksForPodsThatTheCacheDoesNotShow(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	s.evictAndCollect(t)
	s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
	s.restart()
	pod := s.createPod(t)
	for range 5 {
		s.expectLook(t, "a pod runs")
	}
	s.deletePod(t, pod)
	s.reconcileGone(t)
	s.expectPreempted(t)
}

// A worker that does not let the hub read Jobs was joined by an earlier release. The hub looks at pods only.
func TestEvictionWithoutTheRightToReadJobs(t *testing.T) {
	s := newScene(t, setting{})
	s.options.Worker = hidesJobs{s.worker.Connection}
	s.restart()
	s.getUnderWay(t)
	s.evictAndCollect(t)
	s.createJob(t)
	s.reconcileGone(t)
	s.expectPreempted(t)
}

// expectLook checks that the attempt has not ended, and that the worker is asked again. It lets the time until then pass.
func (s *scene) expectLook(t *testing.T, why string) {
	t.Helper()
	check.Equal(t, endCheck, s.expectQuiet(t, why).RequeueAfter, "the worker is asked again after: %s", why)
	s.Clock.Step(endCheck)
}

// reconcileGone reconciles until the worker's controllers can make nothing of a copy any more that is gone.
func (s *scene) reconcileGone(t *testing.T) {
	t.Helper()
	for range 1 + makingLag/endCheck {
		s.reconcile(t)
		if d := s.dispatch(t); d == nil || d.AttemptEnded() {
			return
		}
		s.Clock.Step(endCheck)
	}
}

// createJobSet creates the JobSet of a copy.
func (s *scene) createJobSet(t *testing.T, of *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	jobSet := newJobSet()
	jobSet.SetNamespace(s.key.Namespace)
	jobSet.SetName(s.key.Name)
	jobSet.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(of, trainjobs.GroupVersionKind)})
	jobSet.Object["spec"] = map[string]any{}
	must(t, s.worker.Admin.Create(t.Context(), jobSet))
	s.settle(t)
	return jobSet
}

// collectJobSet does what the worker's garbage collector does when what a deleted JobSet owns is gone.
func (s *scene) collectJobSet(t *testing.T, jobSet *unstructured.Unstructured) {
	t.Helper()
	must(t, s.worker.Admin.Get(t.Context(), s.key, jobSet))
	if jobSet.GetDeletionTimestamp() == nil {
		t.Error("nobody deletes the JobSet")
	}
	jobSet.SetFinalizers(nil)
	must(t, s.worker.Admin.Update(t.Context(), jobSet))
	s.settle(t)
}

// createJob creates a Job as a JobSet of the copy's name makes it.
func (s *scene) createJob(t *testing.T, change ...func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	labels := map[string]string{jobsetv1alpha2.JobSetNameKey: s.key.Name, jobsetv1alpha2.JobSetUIDKey: "jobset"}
	pod := s.newPod("")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name + "-node-0", Labels: labels},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod.Spec}},
	}
	for _, f := range change {
		f(job)
	}
	must(t, s.worker.Admin.Create(t.Context(), job))
	return job
}

// hidesJobs is a connection whose user may not list Jobs.
type hidesJobs struct{ copies.Connection }

// APIReader implements copies.Connection.
func (h hidesJobs) APIReader() (client.Reader, error) {
	live, err := h.Connection.APIReader()
	return noJobs{live}, err
}

type noJobs struct{ client.Reader }

// List implements client.Reader.
func (r noJobs) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*batchv1.JobList); ok {
		return apierrors.NewForbidden(batchv1.Resource("jobs"), "", nil)
	}
	return r.Reader.List(ctx, list, options...)
}
