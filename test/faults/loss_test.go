// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/faults/world"
)

// gracePeriod changes a worker's grace period until the test ends.
func (s *scenario) gracePeriod(worker string, d time.Duration) {
	s.Helper()
	set := func(d time.Duration) {
		err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
			object.Spec.Failover.GracePeriod = &metav1.Duration{Duration: d}
		})
		if err != nil {
			s.Error(err)
		}
	}
	set(d)
	s.Cleanup(func() { set(world.GracePeriod) })
}

// A worker is away for less than its grace period. Nothing is written to its jobs.
func TestFaultShortLoss(t *testing.T) {
	s, worker := patient(t)
	s.gracePeriod(worker, time.Hour)
	jobs := []*trainer.TrainJob{s.submit(clusters.RunForever, on(worker)), s.submit(clusters.RunForever, on(worker, south))}
	for _, job := range jobs {
		s.settles(job)
	}
	before := []string{s.versions(jobs[0]), s.versions(jobs[1])}
	s.fault(worker, (*links.Link).Blackhole)
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
	s.ends(s.submit("1s", on(worker, south)))
	s.heal(worker)
	s.ready(worker)
	s.ends(s.submit("1s", on(worker)))
	for i, job := range jobs {
		if after := s.versions(job); after != before[i] {
			t.Errorf("writes for a job whose worker was away for a moment, from %s to %s:\n%s", before[i], after, w.Recorder.Describe(job.UID))
		}
	}
}

// versions are the versions of a job and of its Dispatch on the API server.
func (s *scenario) versions(job *trainer.TrainJob) string {
	s.Helper()
	g := gomega.NewWithT(s)
	current := &trainer.TrainJob{}
	g.Expect(w.Hub.Get(context.Background(), client.ObjectKeyFromObject(job), current)).To(gomega.Succeed())
	return fmt.Sprintf("TrainJob %s, Dispatch %s", current.ResourceVersion, w.DispatchOf(g, job).ResourceVersion)
}
