// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/clusters"
)

// Server is one cluster of a Stage.
type Server struct {
	Cluster *clusters.Cluster
	// Admin is a client with all rights and without a cache.
	Admin client.WithWatch
	// ID is the UID of the namespace kube-system, which identifies the cluster.
	ID types.UID
	// Connection is the hub's connection to this worker: after Stage.Connect, or Join.
	Connection *remote.Cluster
}

// Name is the worker's name.
func (s *Server) Name() v1alpha1.ClusterName { return v1alpha1.ClusterName(s.Cluster.Name) }

// Stage is a hub and its workers.
type Stage struct {
	Hub *Server
	// Workers are in the order of the names that Start was given.
	Workers []*Server
	// Scheme is the scheme of the admin clients.
	Scheme *runtime.Scheme
	// Fleet is connected to all workers: after Connect.
	Fleet *remote.Fleet
	// Cached is the manager's client, which reads from Cache: after StartCaches.
	Cached client.Client
	Cache  cache.Cache

	cleanups []func() error
}

// Worker returns the worker with this name, nil if there is none.
func (s *Stage) Worker(name v1alpha1.ClusterName) *Server {
	for _, worker := range s.Workers {
		if worker.Name() == name {
			return worker
		}
	}
	return nil
}

// Start starts a hub, and workers with these names. All have the CRDs of the trainer and of JobSet. The hub also has
// our CRDs. The context limits only the start. Stop ends what Start has started.
func Start(ctx context.Context, workers ...string) (*Stage, error) {
	return StartWith(ctx, func(*clusters.Options) {}, workers...)
}

// StartWith is Start with changed options for the clusters.
func StartWith(ctx context.Context, change func(*clusters.Options), workers ...string) (*Stage, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	options, err := clusterOptions(ctx, workers)
	if err != nil {
		return nil, err
	}
	for i := range options {
		change(&options[i])
	}
	started, err := clusters.StartAll(ctx, options...)
	if err != nil {
		return nil, err
	}
	stage := &Stage{Scheme: scheme}
	stage.Cleanup(func() error { return clusters.StopAll(started...) })
	servers := make([]*Server, len(started))
	for i, cluster := range started {
		if servers[i], err = newServer(ctx, cluster, scheme); err != nil {
			return nil, errors.Join(err, stage.Stop())
		}
	}
	stage.Hub, stage.Workers = servers[0], servers[1:]
	return stage, nil
}

// newScheme has what the trainer's runtimes may contain, too.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), trainer.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		jobsetv1alpha2.AddToScheme(scheme), schedulerplugins.AddToScheme(scheme), volcano.AddToScheme(scheme))
}

// clusterOptions are the options of the hub, and then of the workers.
func clusterOptions(ctx context.Context, workers []string) ([]clusters.Options, error) {
	crds, err := clusters.ModulePaths(ctx, clusters.TrainerCRDs, clusters.JobSetCRDs, clusters.HubCRDs)
	if err != nil {
		return nil, err
	}
	all := []clusters.Options{{Name: "hub", CRDs: crds}}
	for _, name := range workers {
		all = append(all, clusters.Options{Name: name, CRDs: crds[:2]})
	}
	return all, nil
}

func newServer(ctx context.Context, cluster *clusters.Cluster, scheme *runtime.Scheme) (*Server, error) {
	admin, err := client.NewWithWatch(cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("create client for cluster %q: %w", cluster.Name, err)
	}
	identity := &corev1.Namespace{}
	if err := admin.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, identity); err != nil {
		return nil, fmt.Errorf("read identity of cluster %q: %w", cluster.Name, err)
	}
	return &Server{Cluster: cluster, Admin: admin, ID: identity.UID}, nil
}

// StartServer starts one cluster with these options and CRDs, for ShareWith. All have the CRDs of the trainer.
func StartServer(
	ctx context.Context, cleanup func(func() error), options clusters.Options, crds ...clusters.ModuleFile,
) (*Server, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	paths, err := clusters.ModulePaths(ctx, append([]clusters.ModuleFile{clusters.TrainerCRDs}, crds...)...)
	if err != nil {
		return nil, err
	}
	options.CRDs = append(paths, options.CRDs...)
	cluster, err := clusters.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	cleanup(cluster.Stop)
	return newServer(ctx, cluster, scheme)
}

// AccountKubeconfig writes a kubeconfig with a token of a service account for an hour, and returns its path.
func (s *Server) AccountKubeconfig(ctx context.Context, namespace, name string) (path string, err error) {
	kubeconfig, err := s.Cluster.ServiceAccountKubeconfig(ctx, types.NamespacedName{Namespace: namespace, Name: name}, time.Hour)
	if err != nil {
		return "", err
	}
	path = filepath.Join(s.Cluster.Dir, name+".kubeconfig")
	return path, os.WriteFile(path, kubeconfig, 0o600)
}

// WithWarnings returns a client with all rights, and the warnings that it gets.
func (s *Server) WithWarnings() (client.Client, *Warnings, error) {
	config, warnings := rest.CopyConfig(s.Cluster.Config), &Warnings{}
	config.WarningHandler = warnings
	c, err := client.New(config, client.Options{Scheme: s.Admin.Scheme()})
	return c, warnings, err
}

// InstallRuntime installs the trainer module's ClusterTrainingRuntime torch-distributed.
func (s *Server) InstallRuntime(ctx context.Context) error {
	return s.Cluster.ApplyTrainerRuntimes(ctx, "torch_distributed.yaml")
}

// Cleanup makes Stop call a function before it stops the servers, in reverse order of the calls to Cleanup.
func (s *Stage) Cleanup(f func() error) { s.cleanups = append(s.cleanups, f) }

// Stop calls the functions that Cleanup was given, and stops the servers. Call it once.
func (s *Stage) Stop() error { return runBackward(s.cleanups) }
