// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
)

// awayWithAJob begins a scenario with a job that runs on a worker, and makes the worker refuse connections.
func awayWithAJob(t *testing.T) (s *scenario, worker string, job *trainer.TrainJob) {
	t.Helper()
	s, worker = patient(t)
	job = s.submit(clusters.RunForever, on(worker))
	s.Runs(job, worker, 1)
	s.fault(worker, func(l *links.Link) error { l.Refuse(); return nil })
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
	return s, worker, job
}

// A job is deleted while its worker is away. The TrainJob is gone at once. Its Dispatch stays, and says for which
// worker it waits. When the worker returns, the copy is deleted, and then the Dispatch.
func TestFaultDeletedWhileAway(t *testing.T) {
	s, worker, job := awayWithAJob(t)
	check.Must(t, w.Hub.Delete(t.Context(), job.DeepCopy()))
	s.gone(w.Hub, job, &trainer.TrainJob{})
	s.dispatchSays(job, v1alpha1.DispatchWorkerLost, v1alpha1.ReasonDeletionPending, worker)
	if d := w.DispatchOf(gomega.NewWithT(t), job); d.DeletionTimestamp == nil && len(d.Finalizers) == 0 {
		t.Errorf("the Dispatch does not wait for its worker: %+v", d)
	}
	s.heal(worker)
	s.gone(w.Workers[worker], job, &trainer.TrainJob{})
	s.gone(w.Hub, job, &v1alpha1.Dispatch{})
}

// The same in the foreground: the TrainJob stays visible until its copy is gone.
func TestFaultDeletedInForegroundWhileAway(t *testing.T) {
	s, worker, job := awayWithAJob(t)
	check.Must(t, w.Hub.Delete(t.Context(), job.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.DispatchOf(g, job).DeletionTimestamp).NotTo(gomega.BeNil())
	})
	if err := w.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), &trainer.TrainJob{}); err != nil {
		t.Errorf("the TrainJob is not visible while its copy exists: %v", err)
	}
	s.heal(worker)
	s.gone(w.Hub, job, &trainer.TrainJob{})
	s.gone(w.Workers[worker], job, &trainer.TrainJob{})
}

// gone waits until there is no object of the job's name.
func (s *scenario) gone(c client.Reader, job client.Object, object client.Object) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		err := c.Get(context.Background(), client.ObjectKeyFromObject(job), object)
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(err).To(gomega.HaveOccurred(), "%T is still there", object)
	})
}
