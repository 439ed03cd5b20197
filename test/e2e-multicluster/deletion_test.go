// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// Deleting the hub TrainJob removes Dispatch, copy, JobSet and pods, even if the garbage collector is told to leave
// dependents (--cascade=orphan). A new TrainJob of the same name runs at once.
func TestDeletion(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground,
		"foreground": metav1.DeletePropagationForeground,
		"orphan":     metav1.DeletePropagationOrphan,
	} {
		t.Run(name, func(t *testing.T) {
			wanted := yard.Job{Name: "deleted-" + name, GPUs: 1, RunFor: "forever"}
			job := submit(t, wanted)
			worker := placedOn(t, job)
			y.Eventually(t, func(g gomega.Gomega) { g.Expect(y.PodsOf(g, worker, job)).To(gomega.HaveLen(1)) })

			check.Must(t, y.Hub.Delete(t.Context(), job, client.PropagationPolicy(policy)))
			next := recreate(t, wanted)
			y.Eventually(t, func(g gomega.Gomega) {
				d := y.DispatchOf(g, next)
				g.Expect(d.Spec.TrainJob.UID).To(gomega.Equal(next.UID))
				copied := &trainer.TrainJob{}
				g.Expect(y.Workers[string(d.Spec.Cluster)].Get(t.Context(), client.ObjectKeyFromObject(next), copied)).To(gomega.Succeed())
				g.Expect(copied.Labels[v1alpha1.LabelOriginUID]).To(gomega.Equal(string(next.UID)))
			})

			check.Must(t, y.Hub.Delete(t.Context(), next, client.PropagationPolicy(policy)))
			y.Eventually(t, func(g gomega.Gomega) {
				key := client.ObjectKeyFromObject(next)
				expectGone(t, g, y.Hub, key, &trainer.TrainJob{}, &v1alpha1.Dispatch{})
				for worker, c := range y.Workers {
					expectGone(t, g, c, key, &trainer.TrainJob{}, &jobsetv1alpha2.JobSet{})
					g.Expect(y.PodsOf(g, worker, next)).To(gomega.BeEmpty())
				}
			})
		})
	}
}

// TestJobWithTTL: after its time a job is deleted with its Dispatch, its copy and the copy's pods, although the
// retention of the copy is not over. Until then its history says what it has cost.
func TestJobWithTTL(t *testing.T) {
	wanted := yard.Job{Name: "short-lived", GPUs: 1, RunFor: "2s"}.TrainJob()
	wanted.Annotations = map[string]string{v1alpha1.AnnotationTTL: "86400"}
	check.Must(t, y.Hub.Create(t.Context(), wanted))
	name := placedOn(t, wanted)
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, wanted)
		g.Expect(d.IsFinished()).To(gomega.BeTrue())
		g.Expect(d.Status.History).To(gomega.HaveLen(1))
		g.Expect(d.Status.History[0].GPUSeconds).To(gomega.HaveValue(gomega.BeNumerically(">=", 1)))
	})
	edit(t.Context(), t, y.Hub, wanted, func(job *trainer.TrainJob) { job.Annotations[v1alpha1.AnnotationTTL] = "0" })
	key := client.ObjectKeyFromObject(wanted)
	y.Eventually(t, func(g gomega.Gomega) {
		expectGone(t, g, y.Hub, key, &trainer.TrainJob{}, &v1alpha1.Dispatch{})
		expectGone(t, g, y.Workers[name], key, &trainer.TrainJob{}, &jobsetv1alpha2.JobSet{})
		g.Expect(y.PodsOf(g, name, wanted)).To(gomega.BeEmpty())
	})
}

// The copy is deleted first and the Dispatch last: while there is a pod, there is a record of it.
func TestDispatchOutlivesItsPods(t *testing.T) {
	job := submit(t, yard.Job{Name: "slow-to-end", GPUs: 1, RunFor: "forever"})
	name := placedOn(t, job)
	worker := y.Workers[name]
	y.Eventually(t, func(g gomega.Gomega) { g.Expect(y.PodsOf(g, name, job)).To(gomega.HaveLen(1)) })

	// A finalizer of our own keeps the pod, as a node that is slow to stop it would.
	const hold = "e2e.trainyard.dev/hold"
	pod := &y.PodsOf(gomega.NewWithT(t), name, job)[0]
	edit(t.Context(), t, worker, pod, func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, hold) })
	check.Must(t, y.Hub.Delete(t.Context(), job))
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(current(t.Context(), g, worker, pod).DeletionTimestamp).NotTo(gomega.BeNil())
	})
	// Everything that could end has been told to. What is left waits for the pod.
	copied := &trainer.TrainJob{}
	if err := worker.Get(t.Context(), client.ObjectKeyFromObject(job), copied); err != nil {
		t.Errorf("the copy is gone before its pod: %v", err)
	}
	if d := y.DispatchOf(gomega.NewWithT(t), job); string(d.Spec.Cluster) != name {
		t.Errorf("the Dispatch says %q while the pod is on %q", d.Spec.Cluster, name)
	}
	edit(t.Context(), t, worker, pod, func(pod *corev1.Pod) { pod.Finalizers = nil })
	y.Eventually(t, func(g gomega.Gomega) {
		expectGone(t, g, worker, client.ObjectKeyFromObject(job), copied)
		expectGone(t, g, y.Hub, client.ObjectKeyFromObject(job), &v1alpha1.Dispatch{})
	})
}

// recreate creates a job as soon as its name is free.
func recreate(t *testing.T, wanted yard.Job) *trainer.TrainJob {
	t.Helper()
	var job *trainer.TrainJob
	y.Eventually(t, func(g gomega.Gomega) {
		job = wanted.TrainJob()
		g.Expect(y.Hub.Create(t.Context(), job)).To(gomega.Succeed())
	})
	return job
}

func expectGone(t *testing.T, g gomega.Gomega, c client.Reader, key client.ObjectKey, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		err := c.Get(t.Context(), key, object)
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "%T %s: %v", object, key, err)
	}
}
