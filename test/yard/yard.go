// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
)

// HubName is the name of the hub's cluster.
const HubName = "hub"

// Options are the options of a yard.
type Options struct {
	// Dir gets a directory for each cluster. Empty: temporary directories.
	Dir string
	// HubNodes are for the TrainJobs that the hub runs itself.
	HubNodes []clusters.NodeShape
	// HubRelease is Options.Release of the hub. Default: $TRAINYARD_HUB_RELEASE, or else what other clusters have.
	HubRelease string
	// Workers are the workers to start and register, each under its name.
	Workers []Worker
	// OpenAPI is Options.OpenAPI of all clusters.
	OpenAPI bool
	// Audit makes all API servers log their requests.
	Audit bool
	// Agents is how many replicas of the worker-agent each worker has. Default: 1. The hub has one.
	Agents int
	// ManagerArgs and AgentArgs are added to the arguments of managers and workers' agents, and override the yard's own.
	ManagerArgs, AgentArgs []string
	// HubWebhooks makes the manager answer the webhooks of config/webhook-hub.
	HubWebhooks bool
	// Gateway makes the managers serve the gateway, and gives the hub the rights of config/worker-logs and
	// config/worker-exec on the workers.
	Gateway bool
	// Lease are the arguments of leader election of managers and workers' agents. Default: patientLease.
	Lease []string
	// Version is the version of everything at the start. Default: this one.
	Version Version
	// KindWorkers is how many nodes each worker has beside the control plane's, KindMounts are folders of this machine
	// that all nodes of workers get, and KindImages are images for all nodes. They are for clusters of kind only.
	KindWorkers map[string]int
	KindMounts  map[string]string
	KindImages  []string
	// Reach returns the URL at which managers reach the API server of a cluster, for tests whose network fails. Nil: the
	// API server's own URL, on kind the URL for pods.
	Reach func(cluster *clusters.Cluster) (string, error)
	// Progress is called with what is being done. It may be nil.
	Progress func(format string, args ...any)
}

// Worker is a worker of a yard.
type Worker struct {
	Name   string
	Labels map[string]string
	Nodes  []clusters.NodeShape
	// Release is Options.Release of the cluster.
	Release string
	// APIServerArgs are added to the arguments of the API server. They have no effect on kind.
	APIServerArgs []string
	// Failover is the failover of the WorkerCluster, from the first contact on.
	Failover v1alpha1.WorkerFailover
}

// Yard is a hub with workers.
type Yard struct {
	Hub     *clusters.Cluster
	Workers map[string]*clusters.Cluster
	// Agents has the agents of each cluster, by the cluster's name.
	Agents map[string][]*Agent
	// Managers keep the manager running. On kind Agents is nil: both run as Deployments.
	Managers *Managers

	options Options
	stopped chan struct{}
	mu      sync.Mutex // held to write Agents and webhooks
	// webhooks are the addresses of the agents' webhooks, by the cluster's name.
	webhooks map[string]*clusters.WebhookServer
	// Gateway is where managers serve the gateway, nil without Options.Gateway.
	Gateway *clusters.WebhookServer
	// managerKubeconfig is the kubeconfig of the manager's service account.
	managerKubeconfig string
}

// Start starts a yard. The context limits only the start. Stop ends what Start has started.
func Start(ctx context.Context, options Options) (*Yard, error) {
	if options.Progress == nil {
		options.Progress = func(string, ...any) {}
	}
	if options.Reach == nil {
		options.Reach = (*clusters.Cluster).ServerFromPods
	}
	options.Agents = max(options.Agents, 1)
	if options.Lease == nil {
		options.Lease = patientLease
	}
	y := &Yard{
		options: options, Workers: map[string]*clusters.Cluster{}, Agents: map[string][]*Agent{}, stopped: make(chan struct{}),
		webhooks: map[string]*clusters.WebhookServer{},
	}
	if err := y.start(ctx); err != nil {
		return nil, errors.Join(err, y.Stop())
	}
	return y, nil
}

func (y *Yard) start(ctx context.Context) error {
	var err error
	if y.options.Version, err = y.options.Version.Complete(ctx); err != nil {
		return err
	}
	if err := y.startClusters(ctx); err != nil {
		return err
	}
	y.options.Progress("installing RBAC, and a worker-agent on every cluster")
	if err := y.startAgents(ctx); err != nil {
		return err
	}
	y.options.Progress("starting the manager on the hub")
	if err := y.startManagers(ctx); err != nil {
		return err
	}
	for _, worker := range y.options.Workers {
		y.options.Progress("registering %s", worker.Name)
		if err := y.Register(ctx, worker); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all processes. Call it once. It returns an error if a manager or an agent has panicked: it was started
// again, and tests may not have noticed. It does not look into the containers of kind.
func (y *Yard) Stop() error {
	close(y.stopped)
	if y.Managers != nil {
		y.Managers.kept.Wait()
	}
	all := []*clusters.Cluster{}
	if y.Hub != nil {
		all = append(all, y.Hub) // With the manager, which is beside it.
	}
	for _, worker := range y.Workers {
		all = append(all, worker)
	}
	var panics []error
	for _, cluster := range all {
		for _, program := range []string{"manager", "worker-agent"} {
			if process := cluster.Process(program); process != nil {
				panics = append(panics, process.Panicked())
			}
		}
	}
	return errors.Join(errors.Join(panics...), clusters.StopAll(all...))
}

func (y *Yard) startClusters(ctx context.Context) error {
	hubCRDs, err := y.options.Version.crds(ctx, clusters.HubCRDs)
	if err != nil {
		return err
	}
	workerCRDs, err := y.options.Version.crds(ctx, clusters.WorkerCRDs)
	if err != nil {
		return err
	}
	hub := clusters.Full(HubName, y.options.HubNodes...)
	hub.CRDs, hub.Scheduler = hubCRDs, len(y.options.HubNodes) > 0
	hub.Release = cmp.Or(y.options.HubRelease, os.Getenv("TRAINYARD_HUB_RELEASE"))
	all := []clusters.Options{hub}
	for _, worker := range y.options.Workers {
		o := clusters.Full(worker.Name, worker.Nodes...)
		o.APIServerArgs = slices.Concat(o.APIServerArgs, worker.APIServerArgs)
		o.CRDs, o.Release = workerCRDs, worker.Release
		all = append(all, o)
	}
	for i := range all {
		all[i].OpenAPI = y.options.OpenAPI
		all[i].Audit = y.options.Audit && !clusters.OnKind()
		all[i].Kind = clusters.KindOptions{Images: y.kindImages(all[i].Name), Workers: y.options.KindWorkers[all[i].Name]}
		if i > 0 {
			all[i].Kind.Mounts = y.options.KindMounts
		}
		if y.options.Dir != "" {
			all[i].Dir = filepath.Join(y.options.Dir, all[i].Name)
		}
	}
	y.options.Progress("starting %d clusters: etcd, API server, controller manager, scheduler, JobSet and kwok each", len(all))
	started, err := clusters.StartAll(ctx, all...)
	if err != nil {
		return err
	}
	y.Hub = started[0]
	for i, worker := range y.options.Workers {
		y.Workers[worker.Name] = started[i+1]
	}
	return nil
}

// Clusters returns the hub and the workers, by name.
func (y *Yard) Clusters() map[string]*clusters.Cluster {
	all := map[string]*clusters.Cluster{HubName: y.Hub}
	for name, worker := range y.Workers {
		all[name] = worker
	}
	return all
}

// Clients returns admin clients of the hub, and of the workers by name.
func (y *Yard) Clients() (hub client.WithWatch, workers map[string]client.WithWatch, err error) {
	if hub, err = NewClient(y.Hub); err != nil {
		return nil, nil, err
	}
	workers = map[string]client.WithWatch{}
	for name, cluster := range y.Workers {
		if workers[name], err = NewClient(cluster); err != nil {
			return nil, nil, err
		}
	}
	return hub, workers, nil
}

var scheme = sync.OnceValues(func() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(clientgoscheme.AddToScheme(s), trainer.AddToScheme(s), jobsetv1alpha2.AddToScheme(s), v1alpha1.AddToScheme(s))
})

// NewClient returns an admin client of a cluster. Its scheme has all types that the tests need.
func NewClient(cluster *clusters.Cluster) (client.WithWatch, error) {
	s, err := scheme()
	if err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	return client.NewWithWatch(cluster.Config, client.Options{Scheme: s})
}
