// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
	"github.com/trainyard/trainyard/test/stage"
	"github.com/trainyard/trainyard/test/yard"
)

// Namespace of all jobs.
const Namespace = "bench"

// nodes of a worker. Each has room for all jobs of a run: where they fit is not what is measured.
const nodes = 4

// Cluster is the hub or a worker.
type Cluster struct {
	*stage.Server
	Name string
	// API is the benchmark's way to it.
	API *api.Client
	// URL is where the hub's side reaches it.
	URL string
	// Agents are the worker-agents of a worker.
	Agents []*clusters.Process
}

// Fleet is a hub and its workers.
type Fleet struct {
	Hub     *Cluster
	Workers []*Cluster

	set *stage.Stage
}

// Options of a fleet. The zero value is a hub without workers.
type Options struct {
	Workers int
	// Agents is how many worker-agents each worker has.
	Agents int
	// Version is the version of our CRDs and of the agents. Default: this one.
	Version yard.Version
	// RTT between the hub's side and each worker, besides what the machine itself takes.
	RTT time.Duration
	// GarbageCollector runs Kubernetes' garbage collector on each cluster.
	GarbageCollector bool
	// HubArgs are added to the arguments of the hub's API server.
	HubArgs []string
	// Audit makes the API servers log their requests.
	Audit bool
	// GPUs are the GPUs of each node of each worker. Nil: nodes that have room for all jobs of a run.
	GPUs [][]int64
	// Scheduled workers run Jobs: with kube-controller-manager, kube-scheduler, and nodes that play the pods. It needs
	// GPUs.
	Scheduled bool
}

// Start starts a fleet.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	names := make([]string, o.Workers)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%d", i)
	}
	var err error
	if o.Version, err = o.Version.Complete(ctx); err != nil {
		return nil, err
	}
	shared, err := clusters.ModulePaths(ctx, clusters.TrainerCRDs, clusters.JobSetCRDs)
	if err != nil {
		return nil, err
	}
	set, err := stage.StartWith(ctx, func(c *clusters.Options) {
		c.GarbageCollector, c.Audit = o.GarbageCollector, o.Audit
		c.OpenAPI = true // An API server of a user makes them, and the benchmarks count its memory.
		i := slices.Index(names, c.Name)
		switch {
		case i < 0:
			c.APIServerArgs = o.HubArgs
			c.MemoryLimit = "8GiB" // The hub has 50,000 finished jobs and more.
			c.CRDs = append(slices.Clone(shared), filepath.Join(o.Version.Root, clusters.HubCRDs.Path))
		case o.Agents > 0:
			c.CRDs = append(slices.Clone(shared), filepath.Join(o.Version.Root, clusters.WorkerCRDs.Path))
		}
		if i >= 0 && o.Scheduled {
			c.ControllerManager, c.Scheduler, c.Nodes = true, true, shapesOf(o.GPUs[i])
		}
	}, names...)
	if err != nil {
		return nil, err
	}
	f := &Fleet{set: set}
	if err := f.prepare(ctx, names, o); err != nil {
		_ = f.Stop() // The first error says more.
		return nil, err
	}
	return f, nil
}

// shapesOf are nodes with these GPUs.
func shapesOf(gpus []int64) []clusters.NodeShape {
	counts := map[int64]int{}
	for _, count := range gpus {
		counts[count]++
	}
	var shapes []clusters.NodeShape
	for _, count := range slices.Sorted(maps.Keys(counts)) {
		shapes = append(shapes, yard.GPUNodes(fmt.Sprintf("gpus-%d", count), counts[count], count, "FAKE"))
	}
	return shapes
}

func (f *Fleet) prepare(ctx context.Context, names []string, o Options) (err error) {
	if f.Hub, err = newCluster("hub", f.set.Hub); err != nil {
		return err
	}
	for i, name := range names {
		worker, err := newCluster(name, f.set.Workers[i])
		if err != nil {
			return err
		}
		if o.RTT > 0 {
			if worker.URL, err = f.distant(worker, o.RTT); err != nil {
				return err
			}
		}
		f.Workers = append(f.Workers, worker)
	}
	for i, cluster := range f.Clusters() {
		if err := cluster.prepare(ctx, nodesOf(o, i-1)); err != nil {
			return fmt.Errorf("prepare cluster %q: %w", cluster.Name, err)
		}
	}
	if o.Agents == 0 {
		return nil
	}
	for _, worker := range f.Workers {
		if err := worker.startAgents(ctx, o.Agents, o.Version); err != nil {
			return fmt.Errorf("start the agents of worker %q: %w", worker.Name, err)
		}
	}
	return nil
}

// nodesOf returns the nodes that have to be made for a worker. The hub is -1 and has none.
func nodesOf(o Options, worker int) []*corev1.Node {
	var all []*corev1.Node
	switch {
	case worker < 0 || o.Scheduled:
	case o.GPUs != nil:
		for i, gpus := range o.GPUs[worker] {
			all = append(all, newNode(fmt.Sprintf("node-%d", i), *resource.NewQuantity(gpus, resource.DecimalSI)))
		}
	default:
		for i := range nodes {
			all = append(all, newNode(fmt.Sprintf("node-%d", i), resource.MustParse("10M")))
		}
	}
	return all
}

func newCluster(name string, server *stage.Server) (*Cluster, error) {
	client, err := api.New(server.Cluster.Config)
	return &Cluster{Server: server, Name: name, API: client, URL: server.Cluster.Config.Host}, err
}

// Clusters are the hub and the workers.
func (f *Fleet) Clusters() []*Cluster { return append([]*Cluster{f.Hub}, f.Workers...) }

// Stop ends all of it. It is called once.
func (f *Fleet) Stop() error { return f.set.Stop() }

// prepare makes the namespace and the runtime of the jobs, and nodes. A dispatcher could bring some of that to the
// workers, but that is not measured.
func (c *Cluster) prepare(ctx context.Context, nodes []*corev1.Node) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := c.Admin.Create(ctx, namespace); err != nil {
		return err
	}
	if err := c.InstallRuntime(ctx); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := c.Admin.Create(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

func newNode(name string, gpus resource.Quantity) *corev1.Node {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10M"), corev1.ResourceMemory: resource.MustParse("100Pi"),
		corev1.ResourcePods: resource.MustParse("10M"), yard.GPU: gpus,
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nvidia.com/gpu.product": "FAKE"}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

// Kubeconfig is the admin's of a cluster, as the hub's side reaches it.
func (c *Cluster) Kubeconfig() ([]byte, error) {
	kubeconfig, err := c.Cluster.KubeconfigBytes()
	return bytes.Replace(kubeconfig, []byte(c.Cluster.Config.Host), []byte(c.URL), 1), err
}

// WriteKubeconfig writes Kubeconfig to a file, and returns its path.
func (c *Cluster) WriteKubeconfig() (string, error) {
	kubeconfig, err := c.Kubeconfig()
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.Cluster.Dir, "from-hub.kubeconfig")
	return path, os.WriteFile(path, kubeconfig, 0o600)
}

// PatientLease are arguments of leader election. A leader renews its lease as often as by default. But it keeps the
// lease when a busy machine makes it late by more than the ten seconds of the default.
var PatientLease = []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s"}

// agentNamespace is where the agents have their leases.
const agentNamespace = "kubeflow-system"

// startAgents starts worker-agents with their defaults, except for PatientLease. The first answers the webhooks.
func (c *Cluster) startAgents(ctx context.Context, count int, version yard.Version) error {
	if err := c.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}}); err != nil {
		return err
	}
	server, err := c.Cluster.NewWebhookServer("worker-agent")
	if err != nil {
		return err
	}
	webhooks := []string{
		"--webhook-bind-address=" + net.JoinHostPort(server.Host, strconv.Itoa(server.Port)), "--webhook-cert-dir=" + server.CertDir,
	}
	for range count {
		health, err := ports.Free()
		if err != nil {
			return err
		}
		args := slices.Concat([]string{
			"--kubeconfig=" + c.Cluster.KubeconfigPath, "--health-probe-bind-address=" + health, "--metrics-bind-address=0",
		}, PatientLease, webhooks)
		webhooks = nil
		process, err := c.Cluster.Run(ctx, "worker-agent", version.Program("worker-agent"), args...)
		if err != nil {
			return err
		}
		if err := process.AwaitReady(ctx, health); err != nil {
			return err
		}
		c.Agents = append(c.Agents, process)
	}
	return yard.ApplyWebhooks(ctx, c.Cluster, server, version)
}

// Some toxics log on their own, whatever logger their proxy has.
func init() { zerolog.SetGlobalLevel(zerolog.Disabled) }

// distant puts a toxiproxy before a worker, and returns its URL. It stops with the fleet.
func (f *Fleet) distant(worker *Cluster, rtt time.Duration) (string, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, worker.Name, "127.0.0.1:0", strings.TrimPrefix(worker.URL, "https://"))
	if err := proxy.Start(); err != nil {
		return "", fmt.Errorf("put worker %q at a distance: %w", worker.Name, err)
	}
	f.set.Cleanup(func() error { proxy.Stop(); return nil })
	for _, stream := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"type": "latency", "stream": %q, "attributes": {"latency": %d}}`, stream, (rtt / 2).Milliseconds())
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return "", fmt.Errorf("put worker %q at a distance: %w", worker.Name, err)
		}
	}
	return "https://" + proxy.Listen, nil
}
