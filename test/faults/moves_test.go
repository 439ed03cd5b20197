// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
)

// editSpec changes the spec of a WorkerCluster until the test ends.
func (s *scenario) editSpec(worker string, change func(*v1alpha1.WorkerClusterSpec)) {
	s.Helper()
	var before v1alpha1.WorkerClusterSpec
	edit := func(change func(*v1alpha1.WorkerClusterSpec)) {
		err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
			before = *object.Spec.DeepCopy()
			change(&object.Spec)
		})
		if err != nil {
			s.Error(err)
		}
	}
	edit(change)
	original := before
	s.Cleanup(func() { edit(func(spec *v1alpha1.WorkerClusterSpec) { *spec = original }) })
}

// A worker is cordoned: its jobs stay, and it gets no new jobs.
func TestFaultCordon(t *testing.T) {
	s, worker := with(t)
	stays := s.submit("4s", on(worker, south))
	s.Runs(stays, worker, 1)
	s.editSpec(worker, func(spec *v1alpha1.WorkerClusterSpec) { spec.Unschedulable = true })
	elsewhere := s.submit("1s", on(worker, south))
	s.ends(elsewhere, stays)
	s.Attempt(stays, 1)
	if d := w.DispatchOf(gomega.NewWithT(t), elsewhere); d.Spec.Cluster != south {
		t.Errorf("placed on %s, which is cordoned", d.Spec.Cluster)
	}
}

// A worker is drained: its jobs move, one at a time. A job that fits nowhere else stays and says so.
func TestFaultDrain(t *testing.T) {
	s, worker := with(t)
	jobs := []*trainer.TrainJob{
		s.submit(clusters.RunForever, on(worker, south), terminating("1s")),
		s.submit(clusters.RunForever, on(worker, south), terminating("1s")),
	}
	pinned := s.submit(clusters.RunForever, on(worker))
	for _, job := range append(jobs, pinned) {
		s.Runs(job, worker, 1)
	}
	s.editSpec(worker, func(spec *v1alpha1.WorkerClusterSpec) { spec.Drain = true })
	for _, job := range jobs {
		s.historyHas(job, 1, worker, v1alpha1.OutcomeDrained)
		s.Runs(job, south, 2)
	}
	s.Eventually(func(g gomega.Gomega) {
		c := meta.FindStatusCondition(w.DispatchOf(g, pinned).Status.Conditions, v1alpha1.DispatchEvicting)
		g.Expect(c).To(gomega.HaveValue(gomega.HaveField("Reason", v1alpha1.ReasonNoRoomElsewhere)))
	})
	s.Attempt(pinned, 1)
	first, second := w.Recorder.Intervals(jobs[0].UID), w.Recorder.Intervals(jobs[1].UID)
	if first[0].To.After(second[0].To) {
		first, second = second, first
	}
	if second[0].To.Before(first[1].From) {
		t.Errorf("two jobs were on the move at a time: %v and %v", first, second)
	}
}
