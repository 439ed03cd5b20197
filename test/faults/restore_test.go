// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"path/filepath"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// restoreHub puts the hub back to a backup, as an admin does: the manager is stopped, and starts when the API server is
// back.
func (s *scenario) restoreHub(backup string) {
	s.Helper()
	check.Must(s, w.Managers.Away())
	check.Must(s, w.Yard.Hub.Restore(s.Context(), backup))
	check.Must(s, w.Recorder.Restored(s.Context()))
	check.Must(s, w.Managers.Back())
}

// The hub is restored from a backup that is older than some jobs, and older than a move. No running job is stopped or
// started twice. An admin decides about copies that the hub does not know. A job that has moved since the backup is
// found on its new worker.
func TestFaultHubRestored(t *testing.T) {
	s := alone(t)
	moved := s.submit(clusters.RunForever, on(west, east))
	stays := s.submit(clusters.RunForever, on(west))
	ended := s.submit("15s", on(west))
	s.Runs(moved, west, 1)
	s.settles(stays)
	backup := filepath.Join(t.TempDir(), "backup")
	check.Must(t, w.Yard.Hub.BackUp(backup))
	s.editSpec(west, func(spec *v1alpha1.WorkerClusterSpec) { spec.Unschedulable = true })
	check.Must(t, w.Workers[west].Delete(t.Context(), copyOf(gomega.NewWithT(t), west, moved)))
	s.Runs(moved, east, 2)
	unknown := map[v1alpha1.CopyDecision]*trainer.TrainJob{}
	copies := map[v1alpha1.CopyDecision]*trainer.TrainJob{}
	for _, decision := range []v1alpha1.CopyDecision{v1alpha1.DecisionAdopt, v1alpha1.DecisionRelease, v1alpha1.DecisionDelete} {
		unknown[decision] = s.submit(clusters.RunForever, on(east))
	}
	for decision, job := range unknown {
		s.Runs(job, east, 1)
		copies[decision] = copyOf(gomega.NewWithT(t), east, job)
	}
	s.ends(ended)

	s.restoreHub(backup)
	s.workerSays(east, v1alpha1.WorkerClusterUnknownCopies, v1alpha1.ReasonQuarantined)
	s.Eventually(func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(t.Context(), client.ObjectKey{Name: east}, object)).To(gomega.Succeed())
		g.Expect(object.Status.UnknownCopies).To(gomega.HaveLen(len(unknown)))
	})
	// The move is known again: the copy of the second attempt goes on, and the hub says so.
	s.Runs(moved, east, 2)
	s.Runs(stays, west, 1)
	s.ends(ended)
	for _, job := range unknown {
		if after := copyOf(gomega.NewWithT(t), east, job); after.DeletionTimestamp != nil {
			t.Errorf("the hub deletes what it does not know: %s", job.Name)
		}
	}

	s.decide(east, copies)
	adopted := s.submit(clusters.RunForever, on(east), func(job *trainer.TrainJob) { job.Name = unknown[v1alpha1.DecisionAdopt].Name })
	s.Runs(adopted, east, 1)
	if after := copyOf(gomega.NewWithT(t), east, adopted); after.UID != copies[v1alpha1.DecisionAdopt].UID {
		t.Error("the adopted copy was started again")
	}
	s.gone(w.Workers[east], unknown[v1alpha1.DecisionDelete], &trainer.TrainJob{})
	s.Eventually(func(g gomega.Gomega) {
		released := copyOf(g, east, unknown[v1alpha1.DecisionRelease])
		g.Expect(released.Labels).NotTo(gomega.HaveKey(v1alpha1.LabelHub))
		g.Expect(w.PodsOf(g, east, released)).NotTo(gomega.BeEmpty(), "it runs on")
	})
	// The TrainJob belongs to the worker now, and the test plays the worker's admin.
	if err := w.Workers[east].Delete(t.Context(), copies[v1alpha1.DecisionRelease]); err != nil {
		t.Error(err)
	}
	for _, job := range []*trainer.TrainJob{moved, stays} {
		if intervals := w.Recorder.Intervals(job.UID); !intervals[len(intervals)-1].To.IsZero() {
			t.Errorf("%s was stopped by the restore: %v", job.Name, intervals)
		}
	}
}

// decide says for each unknown copy what an admin wants.
func (s *scenario) decide(worker string, copies map[v1alpha1.CopyDecision]*trainer.TrainJob) {
	s.Helper()
	err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
		for decision, copied := range copies {
			metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationDecisionPrefix+string(copied.UID), string(decision))
		}
	})
	if err != nil {
		s.Error(err)
	}
}
