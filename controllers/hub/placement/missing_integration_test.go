// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// lacks has a worker lack fields, as its status says, and brings the event to the reconciler.
func (s *scene) lacks(t *testing.T, name v1alpha1.ClusterName, ofJobs, ofRuntimes []string) {
	t.Helper()
	s.worker(t, name, func(worker *v1alpha1.WorkerCluster) {
		worker.Status.Trainer = &v1alpha1.TrainerAPI{Version: "v1alpha1", Release: "2.1", Missing: ofJobs, MissingOfRuntimes: ofRuntimes}
	})
	worker := s.WorkerCluster(t, name)
	s.reconciler.watches.workers().Update(context.Background(), event.UpdateEvent{ObjectOld: worker, ObjectNew: worker}, nil)
}

// A job whose fields no worker knows waits without an attempt, and goes on when a worker is upgraded. Jobs that use other
// fields are placed meanwhile.
func TestFieldUnknownIsNotTried(t *testing.T) {
	s := newScene(t)
	for _, worker := range []v1alpha1.ClusterName{east, west} {
		s.lacks(t, worker, []string{"activeDeadlineSeconds", "runtimePatches"}, nil)
	}
	deadline := func(job *trainer.TrainJob) { job.Spec.ActiveDeadlineSeconds = 600 }
	s.Submit(t, "new", deadline)
	s.Submit(t, "plain")
	d := s.expect(t, "new", v1alpha1.ReasonNoFit)
	const words = "FieldUnknown: its TrainJobs do not have spec.activeDeadlineSeconds (Kubeflow Trainer 2.1)"
	check.Diff(t, map[v1alpha1.ClusterName]string{east: words, west: words}, reasonsOf(d), "explanation")
	check.Equal(t, int32(0), d.Spec.Attempt, "attempts")
	plain, _ := s.reconcile(t, "plain")
	if plain.Spec.Cluster == "" {
		t.Error("a job without the fields is not placed")
	}

	s.lacks(t, west, []string{"runtimePatches"}, nil)
	check.Must(t, s.reconciler.decider.Pass(t.Context()))
	if !s.drain()[s.Key("new")] {
		t.Error("nobody looks at the job again")
	}
	d, _ = s.reconcile(t, "new")
	check.Equal(t, west, d.Spec.Cluster, "the worker that knows the field now")
}

// What the runtime uses counts where it would have to be created.
func TestFieldUnknownOfRuntime(t *testing.T) {
	s := newScene(t)
	for _, worker := range []v1alpha1.ClusterName{east, west} {
		s.lacks(t, worker, nil, []string{"mlPolicy.torch"})
	}
	s.Submit(t, "a")
	d := s.expect(t, "a", v1alpha1.ReasonNoFit)
	const words = `FieldUnknown: ClusterTrainingRuntime "torch-distributed" uses spec.mlPolicy.torch, which its runtimes do not have (Kubeflow Trainer 2.1)`
	check.Diff(t, map[v1alpha1.ClusterName]string{east: words, west: words}, reasonsOf(d), "explanation")

	watched := inventories{decider: s.reconciler.decider, connections: s.Fleet, watched: map[v1alpha1.ClusterName]watched{}}
	watched.follow(east, remote.Status{})
	t.Cleanup(watched.watched[east].cancel)
	own := &trainer.ClusterTrainingRuntime{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: "torch-distributed"}, own))
	own.ResourceVersion, own.UID = "", ""
	admin := s.Worker(east).Admin
	check.Must(t, admin.Create(t.Context(), own))
	t.Cleanup(func() { check.Must(t, admin.Delete(context.Background(), own)) })
	gomega.NewWithT(t).Eventually(func() v1alpha1.ClusterName {
		d, _ := s.reconcile(t, "a")
		return d.Spec.Cluster
	}, time.Minute).Should(gomega.Equal(east), "the worker that has a runtime of its own")
}
