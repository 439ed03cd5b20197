// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// If a Dispatch was made for one cluster, and the worker's name leads to another cluster now, the Dispatch is left
// alone: the job's copy may run on the first cluster.
func TestNameLeadsToAnotherCluster(t *testing.T) {
	s := newScene(t, setting{})
	d := s.dispatch(t)
	d.Spec.ClusterID = "the-former"
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.options.ClusterID = "the-present"
	s.restart()
	s.reconcile(t)
	check.Equal(t, nil, s.copy(t), "a copy was created on a cluster that the job was not placed on")
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
	s.reconcile(t)
	check.Diff(t, d, s.dispatch(t), "the Dispatch was touched, and the copy on the former cluster would be forgotten")
	s.options.ClusterID = "the-former"
	s.restart()
	for range 2 {
		s.reconcile(t)
	}
	check.Equal(t, nil, s.dispatch(t), "the name leads back, and the Dispatch was not released")
}

// Fault: the answer to the creation was lost, and the worker's watch lags. The copy that the cache does not show is
// deleted before the Dispatch is released.
func TestReleaseFindsTheCopyThatTheCacheDoesNotShow(t *testing.T) {
	s := newScene(t, setting{})
	lagging := stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
	s.reconcile(t)
	s.options.Worker = lagging
	s.restart()
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
	s.reconcile(t)
	if copy := s.copy(t); copy == nil || copy.GetDeletionTimestamp() == nil {
		t.Errorf("the copy is not being deleted: %v", copy)
	}
	if d := s.dispatch(t); d == nil || len(d.Finalizers) == 0 {
		t.Errorf("the Dispatch was let go before the copy was gone: %+v", d)
	}
}

// Fault: the copy was created while the watch of the worker was broken. No event tells what happens to the copy before
// the watch lists again. If the job is deleted in that time, its copy is deleted too. If somebody deletes the copy in
// that time, the mirror finds out by looking again itself.
func TestCopyThatNoWatchHasShown(t *testing.T) {
	for name, test := range map[string]struct {
		// happens is what no event tells.
		happens func(*testing.T, *scene)
		over    func(*v1alpha1.Dispatch) bool
	}{
		"JobDeleted": {
			func(t *testing.T, s *scene) { must(t, s.Hub.Admin.Delete(t.Context(), s.job(t))) },
			func(d *v1alpha1.Dispatch) bool { return d == nil },
		},
		"JobAndCopyDeleted": {
			func(t *testing.T, s *scene) {
				must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
				must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
			},
			func(d *v1alpha1.Dispatch) bool { return d == nil },
		},
		"CopyDeleted": {
			func(t *testing.T, s *scene) { must(t, s.worker.Admin.Delete(t.Context(), s.copy(t))) },
			func(d *v1alpha1.Dispatch) bool { return d.AttemptEnded() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.options.Worker = stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
			s.restart()
			s.reconcile(t)
			test.happens(t, s)
			for range 10 {
				result := s.reconcile(t)
				d := s.dispatch(t)
				if test.over(d) {
					return
				}
				if copy := s.copy(t); copy != nil && copy.GetDeletionTimestamp() != nil {
					s.collect(t)
				}
				if result.RequeueAfter == 0 && d.DeletionTimestamp == nil {
					t.Fatalf("nobody looks again, and the Dispatch stays: %+v", d)
				}
				s.Clock.Step(result.RequeueAfter)
			}
			t.Errorf("the Dispatch stays: %+v", s.dispatch(t))
		})
	}
}

// Fault: somebody takes our label off the copy, so that no watch shows it any more. It runs, so there is no other
// attempt.
func TestCopyWithoutItsLabelStillRuns(t *testing.T) {
	s := newScene(t, setting{})
	for range 2 { // The second sees the copy in the cache.
		s.reconcile(t)
	}
	hidden := s.copy(t)
	labels := hidden.GetLabels()
	delete(labels, v1alpha1.LabelHub)
	hidden.SetLabels(labels)
	must(t, s.worker.Admin.Update(t.Context(), hidden))
	s.settle(t)
	before := s.dispatch(t)
	s.reconcile(t)
	check.Diff(t, before, s.dispatch(t), "the attempt was given up while its copy runs")
}

// Fault: somebody deletes the copy in the background, and its pods run on. The attempt ends when the last pod has
// ended.
func TestAttemptEndsWithItsPods(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	pod := s.createPod(t)
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	before := s.dispatch(t)
	check.Equal(t, time.Second, s.reconcile(t).RequeueAfter, "the pods are looked at again after")
	check.Diff(t, before, s.dispatch(t), "the attempt was given up while its pod runs")
	s.deletePod(t, pod)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeCopyDeleted, "deleted on worker")
	s.expectNoStatus(t)
}

// Fault: somebody deletes the copy in the background before its JobSet has made a pod. The attempt ends when nothing
// can make a pod any more, also if the garbage collector forgets the JobSet.
func TestAttemptEndsWithItsJobSet(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	jobSet := s.createJobSet(t, s.copy(t))
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	before := s.dispatch(t)
	check.Equal(t, time.Second, s.reconcile(t).RequeueAfter, "the JobSet is looked at again after")
	check.Diff(t, before, s.dispatch(t), "the attempt was given up while its JobSet may make pods")
	s.collectJobSet(t, jobSet)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomeCopyDeleted, "deleted on worker")
}

// createPod creates a pod of the copy, as bound.
func (s *scene) createPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := s.newPod("job-node-0-0")
	must(t, s.worker.Admin.Create(t.Context(), pod))
	s.awaitPods(t, 1)
	return pod
}

func (s *scene) newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: name, Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: s.key.Name},
		},
		Spec: corev1.PodSpec{NodeName: "somewhere", Containers: []corev1.Container{{Name: "node", Image: "i"}}},
	}
}

func (s *scene) deletePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	must(t, s.worker.Admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	s.awaitPods(t, 0)
}

// awaitPods waits until the worker's cache has so many pods of the job.
func (s *scene) awaitPods(t *testing.T, count int) {
	t.Helper()
	eventually(t, "pods in the worker's cache", func(g gomega.Gomega) {
		var pods corev1.PodList
		g.Expect(s.worker.Connection.Cache().List(t.Context(), &pods, client.InNamespace(s.key.Namespace))).To(gomega.Succeed())
		g.Expect(pods.Items).To(gomega.HaveLen(count))
	})
}

// Fault: somebody deleted the Dispatch. The previous leader placed the job again on the same worker. The cache of the
// present leader still shows the old Dispatch, which is being deleted. The copy belongs to the new Dispatch.
func TestCopyOfTheNextDispatchIsLeftAlone(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	must(t, s.Hub.Admin.Delete(t.Context(), s.dispatch(t)))
	s.options.Hub = s.stuck(t, s.Hub.Cluster)
	former := s.dispatch(t)
	next := former.DeepCopy()
	former.Finalizers = nil
	must(t, s.Hub.Admin.Update(t.Context(), former))
	next.ObjectMeta = metav1.ObjectMeta{Namespace: former.Namespace, Name: former.Name, Finalizers: next.Finalizers}
	next.Spec.Attempt++
	must(t, s.Hub.Admin.Create(t.Context(), next))
	s.edit(t, func(copy *unstructured.Unstructured) {
		annotations := copy.GetAnnotations()
		annotations[v1alpha1.AnnotationAttempt] = strconv.Itoa(int(next.Spec.Attempt))
		copy.SetAnnotations(annotations)
	})
	s.restart()
	s.reconcile(t)
	if copy := s.copy(t); copy == nil || copy.GetDeletionTimestamp() != nil {
		t.Errorf("the copy of the next attempt was deleted for a Dispatch of the past: %v", copy)
	}
}

// Fault: the previous leader has moved the job. The cache of the present leader does not show that yet.
func TestNewLeaderDoubtsItsCache(t *testing.T) {
	s := newScene(t, setting{})
	s.options.Hub = s.stuck(t, s.Hub.Cluster)
	moved := s.dispatch(t)
	moved.Spec.Cluster, moved.Spec.Attempt = "elsewhere", 2
	must(t, s.Hub.Admin.Update(t.Context(), moved))
	s.restart()
	if result := s.reconcile(t); result.RequeueAfter == 0 {
		t.Error("it was not to be looked at again")
	}
	check.Equal(t, nil, s.copy(t), "a copy was created for an attempt that the hub has left behind")
}
