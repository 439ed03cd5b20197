// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// A worker is away for less than its grace period. Nothing at all is written for its jobs.
func TestFaultShortLoss(t *testing.T) {
	s, worker := patient(t)
	s.gracePeriod(worker, time.Hour)
	jobs := []*trainer.TrainJob{s.submit(clusters.RunForever, on(worker)), s.submit(clusters.RunForever, on(worker, south))}
	for _, job := range jobs {
		s.settles(job)
	}
	before := []int{w.Recorder.Versions(jobs[0].UID), w.Recorder.Versions(jobs[1].UID)}
	s.fault(worker, (*links.Link).Blackhole)
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
	s.ends(s.submit("1s", on(worker, south)))
	s.heal(worker)
	s.ready(worker)
	s.ends(s.submit("1s", on(worker)))
	for i, job := range jobs {
		if after := w.Recorder.Versions(job.UID); after != before[i] {
			t.Errorf("%d writes for a job whose worker was away for a moment:\n%s", after-before[i], w.Recorder.Describe(job.UID))
		}
	}
}
