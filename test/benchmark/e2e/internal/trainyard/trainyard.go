// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainyard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	namespace  = "trainyard-system"
	policyName = "spread"
	leaseName  = "manager.trainyard.dev"
	poll       = 20 * time.Millisecond
)

// Worker is a cluster that takes jobs.
type Worker struct {
	Name string
	// Kubeconfig is a file.
	Kubeconfig string
}

// Options of a Trainyard. The zero value is one manager of this version, with its defaults.
type Options struct {
	// Replicas is how many managers there are. One of several leads. 0 and 1: one manager, without leader election.
	Replicas int
	// Version of the managers.
	Version yard.Version
	// Args are added to the managers' arguments.
	Args []string
}

// Trainyard is the managers on a hub.
type Trainyard struct {
	hub      *fleet.Cluster
	workers  []Worker
	options  Options
	leader   *clusters.Process
	standbys []*clusters.Process
	pprof    string
}

// New returns a Trainyard that is not running.
func New(hub *fleet.Cluster, workers []Worker, options Options) *Trainyard {
	return &Trainyard{hub: hub, workers: workers, options: options}
}

// On returns a Trainyard with the workers of a fleet.
func On(f *fleet.Fleet, options Options) (*Trainyard, error) {
	var workers []Worker
	for _, cluster := range f.Workers {
		path, err := cluster.WriteKubeconfig()
		if err != nil {
			return nil, err
		}
		workers = append(workers, Worker{cluster.Name, path})
	}
	return New(f.Hub, workers, options), nil
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

// Start starts the managers, and returns when they are ready. The first leads.
func (t *Trainyard) Start(ctx context.Context) (err error) {
	if t.pprof, err = ports.Free(); err != nil {
		return err
	}
	if t.leader, err = t.startManager(ctx, "manager", "--pprof-bind-address="+t.pprof); err != nil {
		return err
	}
	if t.options.Replicas <= 1 {
		return nil
	}
	if err := t.await(ctx, "lead", func() error { return t.leads(ctx) }); err != nil {
		return err
	}
	t.standbys = nil
	for range t.options.Replicas - 1 {
		standby, err := t.startManager(ctx, "manager-standby")
		if err != nil {
			return err
		}
		t.standbys = append(t.standbys, standby)
	}
	return nil
}

// startManager starts a manager under a name, and returns when it is ready.
func (t *Trainyard) startManager(ctx context.Context, name string, more ...string) (*clusters.Process, error) {
	health, err := ports.Free()
	if err != nil {
		return nil, err
	}
	args := slices.Concat([]string{
		"--kubeconfig=" + t.hub.Cluster.KubeconfigPath, "--namespace=" + namespace,
		fmt.Sprintf("--leader-elect=%t", t.options.Replicas > 1),
		"--health-probe-bind-address=" + health, "--metrics-bind-address=0",
	}, fleet.PatientLease, more, t.options.Args)
	process, err := t.hub.Cluster.Run(ctx, name, t.options.Version.Program("manager"), args...)
	if err != nil {
		return nil, err
	}
	return process, process.AwaitReady(ctx, health)
}

// leads returns nil if somebody holds the managers' lease.
func (t *Trainyard) leads(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	if err := t.hub.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: leaseName}, lease); err != nil {
		return err
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return fmt.Errorf("nobody holds the Lease %s", leaseName)
	}
	return nil
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
			return fmt.Errorf("wait for the manager to %s, see %s: %w; last: %w", what, t.leader.LogPath, ctx.Err(), last)
		case <-t.leader.Done():
			return t.leader.Ended()
		case <-time.After(poll):
		}
	}
}

// Stop ends the managers in an orderly way. The leader is the last, so that no other manager leads meanwhile.
func (t *Trainyard) Stop() error {
	var errs []error
	for _, standby := range t.standbys {
		errs = append(errs, standby.Stop())
	}
	return errors.Join(append(errs, t.leader.Stop())...)
}

// PID of the manager that leads.
func (t *Trainyard) PID() int { return t.leader.PID() }

// Pprof is where the profiles of the manager that leads are.
func (t *Trainyard) Pprof() string { return t.pprof }

// Labels of the jobs: none.
func (t *Trainyard) Labels() []map[string]string { return []map[string]string{nil} }

// RecordKeys is where etcd has the Dispatches.
func (t *Trainyard) RecordKeys(namespace string) string {
	return "/registry/" + v1alpha1.GroupVersion.Group + "/dispatches/" + namespace + "/"
}
