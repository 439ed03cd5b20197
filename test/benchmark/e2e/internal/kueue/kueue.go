// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
)

const poll = 50 * time.Millisecond

// Tuning says how Kueue is configured.
type Tuning struct {
	// Groups is how many times each worker is registered, and how many ClusterQueues the jobs are spread over.
	Groups int
	// QPS of each manager to its own API server, and Burst. 0: as in Kueue's manifests.
	QPS, Burst int
	// Concurrency of every controller. 0: as in Kueue's manifests.
	Concurrency int
	// Integrations that run.
	Integrations []string
	// Dispatcher is MultiKueue's. Empty: as in Kueue's manifests, all clusters at once.
	Dispatcher string
	// GPUs are the quota of each worker's ClusterQueues. Nil: they are never full.
	GPUs []int64
}

// Defaults is Kueue as its manifests install it, with those of their integrations whose kinds there are: MultiKueue does not connect a
// worker that lacks the kind of one.
func Defaults() Tuning {
	return Tuning{Groups: 1, Integrations: []string{
		"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob", "pod", "deployment", "statefulset",
	}}
}

// Tuned is what an admin could configure who has read how MultiKueue works.
func Tuned() Tuning {
	return Tuning{Groups: 8, QPS: 5000, Burst: 10000, Concurrency: 20, Integrations: []string{
		"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob",
	}}
}

// Kueue is one manager on each cluster of a fleet.
type Kueue struct {
	fleet    *fleet.Fleet
	tuning   Tuning
	managers []*manager // The hub's is the first.
}

// New returns a Kueue that is not running.
func New(f *fleet.Fleet, tuning Tuning) *Kueue { return &Kueue{fleet: f, tuning: tuning} }

// Install installs Kueue on all clusters, starts the workers' managers and makes the queues.
func (k *Kueue) Install(ctx context.Context) error {
	source, err := findSource(ctx)
	if err != nil {
		return err
	}
	for _, cluster := range k.fleet.Clusters() {
		m := &manager{cluster: cluster, source: source, tuning: k.tuning}
		if err := m.install(ctx); err != nil {
			return fmt.Errorf("install Kueue on cluster %q: %w", cluster.Name, err)
		}
		k.managers = append(k.managers, m)
	}
	// Queues need the webhooks, so also the hub's manager runs for a moment.
	var group errgroup.Group
	for _, m := range k.managers {
		group.Go(func() error { return m.start(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, worker := range k.fleet.Workers {
		if err := k.apply(ctx, worker, slices.Concat(flavor(), queues(k.tuning, false, i))); err != nil {
			return err
		}
	}
	registrations, err := k.registrations()
	if err != nil {
		return err
	}
	if err := k.apply(ctx, k.fleet.Hub, slices.Concat(flavor(), registrations, queues(k.tuning, true, 0))); err != nil {
		return err
	}
	return k.managers[0].process.Stop()
}

// Start starts the hub's manager, and returns when it is ready.
func (k *Kueue) Start(ctx context.Context) error { return k.managers[0].start(ctx) }

// Connected returns when all workers, and all queues, are active.
func (k *Kueue) Connected(ctx context.Context) error {
	for _, kind := range []string{"MultiKueueCluster", "AdmissionCheck", "ClusterQueue"} {
		if err := k.active(ctx, k.fleet.Hub, kind); err != nil {
			return err
		}
	}
	for _, worker := range k.fleet.Workers {
		if err := k.active(ctx, worker, "ClusterQueue"); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the hub's manager in an orderly way. Those of the workers go with their clusters.
func (k *Kueue) Stop() error { return k.managers[0].process.Stop() }

// LogPath is the log of the hub's manager, of all its processes one after the other.
func (k *Kueue) LogPath() string { return k.managers[0].process.LogPath }

// PID of the hub's manager.
func (k *Kueue) PID() int { return k.managers[0].process.PID() }

// WorkerPIDs are those of the workers' managers.
func (k *Kueue) WorkerPIDs() []int {
	var pids []int
	for _, m := range k.managers[1:] {
		pids = append(pids, m.process.PID())
	}
	return pids
}

// Pprof is where the profiles of the hub's manager are.
func (k *Kueue) Pprof() string { return k.managers[0].pprof }

// Labels of the jobs: the queues in turn.
func (k *Kueue) Labels() []map[string]string {
	var all []map[string]string
	for group := range k.tuning.Groups {
		all = append(all, map[string]string{"kueue.x-k8s.io/queue-name": queueName(group)})
	}
	return all
}

// RecordPath is where the Workloads are.
func (k *Kueue) RecordPath(namespace string) string {
	return "/apis/" + apiVersion + "/namespaces/" + namespace + "/workloads"
}

// Pause takes the hub's webhooks away: they refuse everything while nobody answers.
func (k *Kueue) Pause(ctx context.Context) error {
	for _, path := range webhooks() {
		if _, err := k.fleet.Hub.API.Do(ctx, http.MethodDelete, path, "", nil); err != nil {
			return err
		}
	}
	return nil
}

// Resume brings the webhooks back. The manager completes them when it starts.
func (k *Kueue) Resume(ctx context.Context) error { return k.managers[0].install(ctx) }
