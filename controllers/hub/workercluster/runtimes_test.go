// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// runtimes are what a test says of the runtimes of its workers.
type runtimes struct {
	status []v1alpha1.WorkerRuntime
	// before is what the status said when it was asked for last. forgotten are the workers of which nothing is kept.
	before    []v1alpha1.WorkerRuntime
	forgotten []v1alpha1.ClusterName
}

func (r *runtimes) Status(_ v1alpha1.ClusterName, before []v1alpha1.WorkerRuntime, _ time.Time) []v1alpha1.WorkerRuntime {
	r.before = before
	return r.status
}

func (r *runtimes) Subscribe(func(v1alpha1.ClusterName, []types.NamespacedName)) (cancel func()) {
	return func() {}
}

func (r *runtimes) Forget(worker v1alpha1.ClusterName) { r.forgotten = append(r.forgotten, worker) }

// What is known of a worker's runtimes is in its status, and is written only when it changes. While the worker is away, it
// stays. Nothing is kept of a worker that is not registered any more.
func TestRuntimesInTheStatus(t *testing.T) {
	s := newScene(t)
	known := &runtimes{}
	s.reconciler.Runtimes = known
	s.register(t, "drifting", s.first)
	check.Equal(t, 0, len(s.become(t, "drifting", v1alpha1.ReasonConnected).Status.Runtimes), "runtimes while nothing is known")

	known.status = []v1alpha1.WorkerRuntime{{
		Kind: "TrainingRuntime", Namespace: "team", Name: "torch", State: v1alpha1.RuntimeDiffers, Paths: []string{"spec.mlPolicy.numNodes"},
		Since: metav1.NewTime(s.Clock.Now()),
	}}
	worker := s.become(t, "drifting", v1alpha1.ReasonConnected)
	check.Diff(t, known.status, worker.Status.Runtimes, "runtimes")
	s.Clock.Step(time.Minute)
	check.Equal(t, worker.ResourceVersion, s.become(t, "drifting", v1alpha1.ReasonConnected).ResourceVersion, "version when nothing has changed")
	check.Diff(t, known.status, known.before, "what the status said before")

	s.lose(t, "drifting", s.first.Cluster.Config.Host)
	s.become(t, "drifting", v1alpha1.ReasonUnreachable)
	shown := known.status
	known.status = nil
	check.Diff(t, shown, s.become(t, "drifting", v1alpha1.ReasonUnreachable).Status.Runtimes, "runtimes of a worker that is away")

	s.unregister(t, "drifting")
	s.reconcile(t, "drifting")
	check.Diff(t, []v1alpha1.ClusterName{"drifting"}, known.forgotten, "workers that are forgotten")
}
