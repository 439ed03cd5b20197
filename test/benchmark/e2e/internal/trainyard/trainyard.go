// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainyard

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

const (
	namespace  = "trainyard-system"
	policyName = "spread"
	poll       = 20 * time.Millisecond
)

// Worker is a cluster that takes jobs.
type Worker struct {
	Name string
	// Kubeconfig is a file.
	Kubeconfig string
}

// Trainyard is a manager on a hub.
type Trainyard struct {
	hub     *fleet.Cluster
	workers []Worker
	args    []string
	process *clusters.Process
	health  string
	pprof   string
}

// New returns a Trainyard that is not running. The arguments are added to the manager's.
func New(hub *fleet.Cluster, workers []Worker, args ...string) *Trainyard {
	return &Trainyard{hub: hub, workers: workers, args: args}
}

// On returns a Trainyard with the workers of a fleet. The arguments are added to the manager's.
func On(f *fleet.Fleet, args ...string) (*Trainyard, error) {
	var workers []Worker
	for _, cluster := range f.Workers {
		path, err := cluster.WriteKubeconfig()
		if err != nil {
			return nil, err
		}
		workers = append(workers, Worker{cluster.Name, path})
	}
	return New(f.Hub, workers, args...), nil
}

// Install registers the workers.
func (t *Trainyard) Install(ctx context.Context) error {
	hub := t.hub.Admin
	if err := hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	if err := hub.Create(ctx, &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policyName},
		Spec: v1alpha1.DispatchPolicySpec{
			Scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreLeastAllocated}}, Retention: &metav1.Duration{},
		},
	}); err != nil {
		return err
	}
	return t.Register(ctx, t.workers)
}

// Expire gives the jobs a retention of their copies and a time until they are deleted, both after their end.
func (t *Trainyard) Expire(ctx context.Context, retention, ttl time.Duration) error {
	policy := &v1alpha1.DispatchPolicy{}
	if err := t.hub.Admin.Get(ctx, client.ObjectKey{Name: policyName}, policy); err != nil {
		return err
	}
	policy.Spec.Retention = &metav1.Duration{Duration: retention}
	policy.Spec.TTLSecondsAfterFinished = ptr.To(int32(ttl.Seconds()))
	return t.hub.Admin.Update(ctx, policy)
}

// Register registers workers.
func (t *Trainyard) Register(ctx context.Context, workers []Worker) error {
	for _, worker := range workers {
		if err := t.hub.Admin.Create(ctx, &v1alpha1.WorkerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: worker.Name},
			Spec:       v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: worker.Kubeconfig}},
		}); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the manager, and returns when it is ready.
func (t *Trainyard) Start(ctx context.Context) (err error) {
	if t.health, err = ports.Free(); err != nil {
		return err
	}
	if t.pprof, err = ports.Free(); err != nil {
		return err
	}
	cluster := t.hub.Cluster
	args := append([]string{
		"--kubeconfig=" + cluster.KubeconfigPath, "--namespace=" + namespace, "--leader-elect=false",
		"--health-probe-bind-address=" + t.health, "--metrics-bind-address=0", "--pprof-bind-address=" + t.pprof,
	}, t.args...)
	if t.process, err = cluster.Run(ctx, "manager", "manager", args...); err != nil {
		return err
	}
	return t.await(ctx, "be ready", func() error { return ports.Ready(ctx, t.health) })
}

// Connected returns when all workers take jobs.
func (t *Trainyard) Connected(ctx context.Context) error {
	return t.await(ctx, "connect all workers", func() error {
		return t.workersAre(ctx, metav1.ConditionTrue)
	})
}

// Disconnected returns when no worker takes jobs.
func (t *Trainyard) Disconnected(ctx context.Context) error {
	return t.await(ctx, "notice that no worker answers", func() error { return t.workersAre(ctx, metav1.ConditionFalse) })
}

// workersAre returns nil if the condition Ready of all workers has a status.
func (t *Trainyard) workersAre(ctx context.Context, status metav1.ConditionStatus) error {
	var list v1alpha1.WorkerClusterList
	if err := t.hub.Admin.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		ready := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.WorkerClusterReady)
		if ready == nil || ready.Status != status {
			return fmt.Errorf("worker %q is not Ready=%s: %+v", list.Items[i].Name, status, ready)
		}
	}
	return nil
}

func (t *Trainyard) await(ctx context.Context, what string, probe func() error) error {
	for {
		last := probe()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the manager to %s, see %s: %w; last: %w", what, t.process.LogPath, ctx.Err(), last)
		case <-t.process.Done():
			return fmt.Errorf("the manager has ended, see %s", t.process.LogPath)
		case <-time.After(poll):
		}
	}
}

// Stop ends the manager in an orderly way.
func (t *Trainyard) Stop() error { return t.process.Stop() }

// PID of the manager.
func (t *Trainyard) PID() int { return t.process.PID() }

// Pprof is where the manager's profiles are.
func (t *Trainyard) Pprof() string { return t.pprof }

// Labels of the jobs: none.
func (t *Trainyard) Labels() []map[string]string { return []map[string]string{nil} }

// RecordPath is where the Dispatches are.
func (t *Trainyard) RecordPath(namespace string) string {
	return "/apis/" + v1alpha1.GroupVersion.String() + "/namespaces/" + namespace + "/dispatches"
}

// Pause does nothing: a hub takes jobs while the manager does not run.
func (t *Trainyard) Pause(context.Context) error { return nil }

// Resume does nothing.
func (t *Trainyard) Resume(context.Context) error { return nil }
