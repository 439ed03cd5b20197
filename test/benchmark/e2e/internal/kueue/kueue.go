// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/kueue"
)

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
	// PodsReadyTimeout is when a job without ready pods loses its quota, for 10 s. 0: as in Kueue's manifests.
	PodsReadyTimeout time.Duration
	// GPUs are the quota of each worker's ClusterQueues. Nil: they are never full.
	GPUs []int64
}

// Defaults is Kueue as its manifests install it, but only with integrations whose kinds exist: MultiKueue does not
// connect a worker that lacks the kind of an integration.
func Defaults() Tuning {
	return Tuning{Groups: 1, Integrations: []string{
		"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob", "pod", "deployment", "statefulset",
	}}
}

// Tuned is what an admin could configure after reading how MultiKueue works.
func Tuned() Tuning {
	return Tuning{Groups: 8, QPS: 5000, Burst: 10000, Concurrency: 20, Integrations: []string{
		"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob",
	}}
}

// overrides are the parts of the configuration that a tuning replaces.
func (t Tuning) overrides() map[string]any {
	config := map[string]any{}
	if t.QPS > 0 {
		config["clientConnection"] = map[string]any{"qps": t.QPS, "burst": t.Burst}
	}
	if t.Concurrency > 0 {
		kinds := map[string]any{}
		for _, kind := range []string{
			"TrainJob.trainer.kubeflow.org", "Workload.kueue.x-k8s.io", "LocalQueue.kueue.x-k8s.io", "ClusterQueue.kueue.x-k8s.io",
			"AdmissionCheck.kueue.x-k8s.io", "MultiKueueCluster.kueue.x-k8s.io",
		} {
			kinds[kind] = t.Concurrency
		}
		config["controller"] = map[string]any{"groupKindConcurrency": kinds}
	}
	if t.Dispatcher != "" {
		config["multiKueue"] = map[string]any{"dispatcherName": t.Dispatcher}
	}
	if t.PodsReadyTimeout > 0 {
		config["waitForPodsReady"] = map[string]any{
			"timeout": t.PodsReadyTimeout.String(), "requeuingStrategy": map[string]any{"backoffBaseSeconds": 10, "backoffMaxSeconds": 10},
		}
	}
	config["integrations"] = map[string]any{"frameworks": t.Integrations}
	return config
}

// Kueue is one manager on each cluster of a fleet.
type Kueue struct {
	fleet    *fleet.Fleet
	tuning   Tuning
	managers []*kueue.Manager // The hub's is the first.
}

// New returns a Kueue that is not running.
func New(f *fleet.Fleet, tuning Tuning) *Kueue { return &Kueue{fleet: f, tuning: tuning} }

// Install installs Kueue on all clusters, starts the workers' managers and makes the queues.
func (k *Kueue) Install(ctx context.Context) error {
	for _, cluster := range k.fleet.Clusters() {
		m := kueue.New(cluster.Cluster, cluster.Admin, k.tuning.overrides())
		if err := m.Install(ctx); err != nil {
			return fmt.Errorf("install Kueue on cluster %q: %w", cluster.Name, err)
		}
		k.managers = append(k.managers, m)
	}
	// Queues need the webhooks, so also the hub's manager runs for a moment.
	var group errgroup.Group
	for _, m := range k.managers {
		group.Go(func() error { return m.Start(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range k.fleet.Workers {
		if err := k.managers[i+1].Apply(ctx, slices.Concat(flavor(), queues(k.tuning, false, i))...); err != nil {
			return err
		}
	}
	registrations, err := k.registrations()
	if err != nil {
		return err
	}
	if err := k.managers[0].Apply(ctx, slices.Concat(flavor(), registrations, queues(k.tuning, true, 0))...); err != nil {
		return err
	}
	return k.Stop()
}

// Start starts the hub's manager, and returns when it is ready.
func (k *Kueue) Start(ctx context.Context) error { return k.managers[0].Start(ctx) }

// Connected returns when all workers, and all queues, are active.
func (k *Kueue) Connected(ctx context.Context) error {
	for _, kind := range []string{"MultiKueueCluster", "AdmissionCheck"} {
		if err := k.managers[0].Active(ctx, kind); err != nil {
			return err
		}
	}
	for _, m := range k.managers {
		if err := m.Active(ctx, "ClusterQueue"); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the hub's manager in an orderly way. The managers of the workers end with their clusters.
func (k *Kueue) Stop() error { return k.managers[0].Process.Stop() }

// LogPath is the log of the hub's manager, of all its processes one after the other.
func (k *Kueue) LogPath() string { return k.managers[0].Process.LogPath }

// PID of the hub's manager.
func (k *Kueue) PID() int { return k.managers[0].Process.PID() }

// Pprof is where the profiles of the hub's manager are.
func (k *Kueue) Pprof() string { return k.managers[0].Pprof }

// Labels of the jobs: the queues in turn.
func (k *Kueue) Labels() []map[string]string {
	var all []map[string]string
	for group := range k.tuning.Groups {
		all = append(all, map[string]string{"kueue.x-k8s.io/queue-name": queueName(group)})
	}
	return all
}

// Pause takes the hub's webhooks away: they refuse everything while nobody answers.
func (k *Kueue) Pause(ctx context.Context) error { return k.managers[0].RemoveWebhooks(ctx) }

// Resume brings the webhooks back. The manager completes them when it starts.
func (k *Kueue) Resume(ctx context.Context) error { return k.managers[0].Install(ctx) }

// RecordKeys is where etcd has the Workloads.
func (k *Kueue) RecordKeys(namespace string) string {
	return "/registry/kueue.x-k8s.io/workloads/" + namespace + "/"
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := kueue.Object(kind, "", name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

func queueName(group int) string { return fmt.Sprintf("queue-%d", group) }

func checkName(group int) string { return fmt.Sprintf("multikueue-%d", group) }

func flavor() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{object("ResourceFlavor", "default", nil)}
}

// queues are ClusterQueues and their LocalQueues. The hub's queues dispatch, and are never full.
func queues(tuning Tuning, hub bool, worker int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	gpus := "10M"
	if !hub && tuning.GPUs != nil {
		gpus = fmt.Sprint(tuning.GPUs[worker])
	}
	for group := range tuning.Groups {
		name := queueName(group)
		spec := map[string]any{
			"namespaceSelector": map[string]any{},
			"resourceGroups": []any{map[string]any{
				"coveredResources": []any{"cpu", "memory", "nvidia.com/gpu"},
				"flavors": []any{map[string]any{"name": "default", "resources": []any{
					map[string]any{"name": "cpu", "nominalQuota": "10M"}, map[string]any{"name": "memory", "nominalQuota": "100Pi"},
					map[string]any{"name": "nvidia.com/gpu", "nominalQuota": gpus},
				}}},
			}},
		}
		if hub {
			spec["admissionChecksStrategy"] = map[string]any{"admissionChecks": []any{map[string]any{"name": checkName(group)}}}
		}
		local := object("LocalQueue", name, map[string]any{"clusterQueue": name})
		local.SetNamespace(fleet.Namespace)
		all = append(all, object("ClusterQueue", name, spec), local)
	}
	return all
}

// registrations are, for each group, all workers. The order differs, so that no worker is the first of all groups.
func (k *Kueue) registrations() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for group := range k.tuning.Groups {
		var names []any
		for i := range k.fleet.Workers {
			worker := k.fleet.Workers[(i+group)%len(k.fleet.Workers)]
			name := fmt.Sprintf("%s-%d", worker.Name, group)
			kubeconfig, err := worker.Kubeconfig()
			if err != nil {
				return nil, err
			}
			secret := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": kueue.Namespace},
				"stringData": map[string]any{"kubeconfig": string(kubeconfig)},
			}}
			all = append(all, secret, object("MultiKueueCluster", name, map[string]any{
				"clusterSource": map[string]any{"kubeConfig": map[string]any{"location": name, "locationType": "Secret"}},
			}))
			names = append(names, name)
		}
		all = append(all, object("MultiKueueConfig", checkName(group), map[string]any{"clusters": names}),
			object("AdmissionCheck", checkName(group), map[string]any{
				"controllerName": "kueue.x-k8s.io/multikueue",
				"parameters":     map[string]any{"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": checkName(group)},
			}))
	}
	return all, nil
}
