// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(s.Hub.InstallRuntime(ctx), s.StartCaches(ctx),
		s.Workers[0].AddNodes(ctx, nil), s.Workers[1].AddNodes(ctx, nil))
}, "east", "west")

func TestMain(m *testing.M) { shared.Main(m) }

// scene has the reconciler that the test calls.
type scene struct {
	*stage.Scene
	room       *rooms
	reconciler *Reconciler
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Scene: shared.Get(t).Scene(t), room: &rooms{}}
	s.restart()
	return s
}

// restart starts a new process.
func (s *scene) restart() {
	s.reconciler = NewReconciler(Options{
		Hub: s.Cached, Room: s.room, Policy: placement.Policies{Hub: s.Cached}.For, Clock: s.Clock,
	})
}

func drain(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = true }

func undrain(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = false }

// place submits a job, and creates the Dispatch that placement and mirror would write, with a copy on the worker.
func (s *scene) place(t *testing.T, name string, worker v1alpha1.ClusterName, change ...func(*trainer.TrainJob)) {
	t.Helper()
	s.Copied(t, s.Place(t, s.Submit(t, name, change...), worker, func(d *v1alpha1.Dispatch) {
		d.Spec.PodSets = []v1alpha1.PodSet{{Name: "node", Count: 2}}
	}))
}

// stopped writes what mirror writes when it has carried out an eviction.
func (s *scene) stopped(t *testing.T, name string) {
	t.Helper()
	d := s.Dispatch(t, name)
	if d.Spec.Eviction == nil {
		t.Fatalf("%s is not being evicted", name)
	}
	ender := records.Writer{Hub: s.Hub.Admin, Clock: s.Clock}
	check.Must(t, ender.End(t.Context(), d, v1alpha1.Outcome(d.Spec.Eviction.Reason), "by hand"))
}

// says writes the hub TrainJob's status in place of mirror.
func (s *scene) says(t *testing.T, name string, status trainer.TrainJobStatus) {
	t.Helper()
	job := s.TrainJob(t, name)
	job.Status = status
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), job))
}

// reconcile reconciles a worker without an error, when the cache is up to date.
func (s *scene) reconcile(t *testing.T, worker v1alpha1.ClusterName) reconcile.Result {
	t.Helper()
	s.Settle(t, s.Cached)
	result, err := s.reconciler.Reconcile(t.Context(), request(worker))
	check.Must(t, err)
	return result
}

func request(worker v1alpha1.ClusterName) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: string(worker)}}
}

// evicted returns the jobs that are being evicted, and why, sorted.
func (s *scene) evicted(t *testing.T) []string {
	t.Helper()
	var dispatches v1alpha1.DispatchList
	check.Must(t, s.Hub.Admin.List(t.Context(), &dispatches, client.InNamespace(s.Namespace)))
	evicted := []string{}
	for i := range dispatches.Items {
		if d := &dispatches.Items[i]; d.Spec.Eviction != nil {
			evicted = append(evicted, fmt.Sprintf("%s %s", d.Name, d.Spec.Eviction.Reason))
		}
	}
	slices.Sort(evicted)
	return evicted
}

func (s *scene) wantEvicted(t *testing.T, reason string, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	check.Diff(t, want, s.evicted(t), fmt.Sprintf("evicted: %s", reason))
}
