// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// copyOf reads a job's copy.
func copyOf(g gomega.Gomega, worker string, job client.Object) *trainer.TrainJob {
	c := &trainer.TrainJob{}
	g.Expect(w.Workers[worker].Get(context.Background(), client.ObjectKeyFromObject(job), c)).To(gomega.Succeed())
	return c
}

// patch changes an object with a merge patch of the difference.
func patch[T client.Object](s *scenario, c client.Client, object T, change func(T)) {
	s.Helper()
	before := object.DeepCopyObject().(T)
	change(object)
	check.Must(s, c.Patch(context.Background(), object, client.MergeFrom(before)))
}

// historyHas waits until an attempt of a job has ended with an outcome.
func (s *scenario) historyHas(job *trainer.TrainJob, attempt int32, worker string, outcome v1alpha1.Outcome) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.DispatchOf(g, job).Status.History).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Attempt", attempt), gomega.HaveField("Outcome", outcome), gomega.HaveField("Cluster", v1alpha1.ClusterName(worker)),
		)))
	})
}

// Somebody deletes the copy on the worker while it runs. The job gets a new attempt when no pod is alive.
func TestFaultCopyDeleted(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker))
	s.Runs(job, worker, 1)
	check.Must(t, w.Workers[worker].Delete(t.Context(), copyOf(gomega.NewWithT(t), worker, job)))
	s.historyHas(job, 1, worker, v1alpha1.OutcomeCopyDeleted)
	s.Runs(job, worker, 2)
}

// Somebody deletes the copy in the background, and its pods take long to end. The next attempt waits for them.
func TestFaultCopyDeletedBeforeItsPods(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker, south), terminating("4s"))
	s.Runs(job, worker, 1)
	check.Must(t, w.Workers[worker].Delete(t.Context(), copyOf(gomega.NewWithT(t), worker, job)))
	s.historyHas(job, 1, worker, v1alpha1.OutcomeCopyDeleted)
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.DispatchOf(g, job).Spec.Attempt).To(gomega.BeEquivalentTo(2)) })
	if intervals := w.Recorder.Intervals(job.UID); intervals[0].To.Sub(intervals[0].From) < 4*time.Second {
		t.Errorf("the pods were to go on for 4s: %v", intervals)
	}
}

// Somebody removes our labels from a running copy. The caches no longer show it. No second copy is started.
func TestFaultCopyUnlabelled(t *testing.T) {
	s, worker := with(t)
	job := s.submit("20s", on(worker, south))
	s.Runs(job, worker, 1)
	labels := map[string]string{}
	patch(s, w.Workers[worker], copyOf(gomega.NewWithT(t), worker, job), func(c *trainer.TrainJob) {
		for key, value := range c.Labels {
			labels[key] = value
		}
		delete(c.Labels, v1alpha1.LabelHub)
		delete(c.Labels, v1alpha1.LabelOriginUID)
	})
	s.ends(s.submit("6s", on(south))) // A copy counts as gone after looks that found nothing for three seconds.
	s.Attempt(job, 1)
	patch(s, w.Workers[worker], copyOf(gomega.NewWithT(t), worker, job), func(c *trainer.TrainJob) { c.Labels = labels })
	s.ends(job)
	s.Attempt(job, 1)
}

// Somebody suspends the copy on the worker. The manager resumes it, because the hub's job is not suspended.
func TestFaultCopySuspended(t *testing.T) {
	s, worker := with(t)
	job := s.submit("3s", on(worker))
	s.Runs(job, worker, 1)
	patch(s, w.Workers[worker], copyOf(gomega.NewWithT(t), worker, job), func(c *trainer.TrainJob) { c.Spec.Suspend = ptr.To(true) })
	s.ends(job)
	s.Attempt(job, 1)
}

// The copy is deleted, and a foreign job gets its name before the next attempt. The foreign job is left alone, and the
// job runs on another worker.
func TestFaultForeignJobOfTheName(t *testing.T) {
	s, worker := with(t)
	if err := yard.InstallRuntimes(t.Context(), w.Yard.Workers[worker]); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	job := s.submit(clusters.RunForever, on(worker, south))
	s.Runs(job, worker, 1)
	foreign := yard.Job{Name: job.Name, ManagedBy: v1alpha1.ManagedByBuiltIn, RunFor: clusters.RunForever}.TrainJob()
	var before *trainer.TrainJob
	check.Must(t, w.Workers[worker].Delete(t.Context(), copyOf(gomega.NewWithT(t), worker, job), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	t.Cleanup(func() { _ = w.Workers[worker].Delete(context.Background(), foreign) })
	s.Eventually(func(g gomega.Gomega) { // Whoever is first: our next attempt may be there for a moment.
		before = foreign.DeepCopy()
		err := w.Workers[worker].Create(t.Context(), before)
		if err != nil {
			_ = w.Workers[worker].DeleteAllOf(t.Context(), &trainer.TrainJob{}, client.InNamespace(job.Namespace),
				client.MatchingLabels{v1alpha1.LabelOriginUID: string(job.UID)})
		}
		g.Expect(err).NotTo(gomega.HaveOccurred())
	})
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.DispatchOf(g, job).Spec.Cluster).To(gomega.BeEquivalentTo(south)) })
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.PodsOf(g, south, job)).NotTo(gomega.BeEmpty()) })
	after := copyOf(gomega.NewWithT(t), worker, job)
	if diff := cmp.Diff(before.ObjectMeta.Labels, after.Labels); diff != "" || before.UID != after.UID || after.DeletionTimestamp != nil {
		t.Errorf("the foreign job was touched: %+v", after)
	}
}

// The namespace is deleted on the worker, with the copy in it.
func TestFaultNamespaceDeleted(t *testing.T) {
	s, worker := with(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "doomed-" + worker}}
	check.Must(t, w.Hub.Create(t.Context(), namespace))
	t.Cleanup(func() { _ = w.Hub.Delete(context.Background(), namespace) })
	job := s.submit(clusters.RunForever, on(worker, south), in(namespace.Name))
	s.Runs(job, worker, 1)
	there := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	check.Must(t, w.Workers[worker].Delete(t.Context(), there))
	s.historyHas(job, 1, worker, v1alpha1.OutcomeCopyDeleted)
	s.Eventually(func(g gomega.Gomega) { // On either worker: the namespace may be there again.
		d := w.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).NotTo(gomega.BeEmpty())
		g.Expect(w.PodsOf(g, string(d.Spec.Cluster), job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// Somebody deletes the Dispatch: the attempt ends, and the next attempt has the next number.
func TestFaultDispatchDeleted(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker, south))
	s.Runs(job, worker, 1)
	first := w.DispatchOf(gomega.NewWithT(t), job)
	check.Must(t, w.Hub.Delete(t.Context(), first))
	s.Eventually(func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.UID).NotTo(gomega.Equal(first.UID))
		g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(2))
		g.Expect(w.PodsOf(g, string(d.Spec.Cluster), job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}
