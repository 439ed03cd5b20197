// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	// HubID is the hub's ID on the labels of copies.
	HubID = "hub-1"
	// SystemNamespace is the manager's namespace. InstallConfig creates it with the part namespace.
	SystemNamespace = "trainyard-system"
)

// startFleet starts connections that notice quickly what happens. The hub is HubID if the options name none.
func startFleet(options remote.Options) (fleet *remote.Fleet, stop func(), err error) {
	if options.HubID == "" {
		options.HubID = HubID
	}
	options.ProbeInterval = time.Second
	ctx, end := context.WithCancel(context.Background())
	if fleet, err = remote.NewFleet(ctx, options); err != nil {
		end()
		return nil, nil, err
	}
	return fleet, func() {
		end()
		fleet.Wait()
	}, nil
}

// StartFleet starts connections with these options for all tests. The hub is HubID if the options name none.
func (s *Stage) StartFleet(options remote.Options) (*remote.Fleet, error) {
	fleet, stop, err := startFleet(options)
	if err == nil {
		s.Cleanup(func() error { stop(); return nil })
	}
	return fleet, err
}

// StartFleet is StartFleet of a Stage for one test.
func StartFleet(t testing.TB, options remote.Options) *remote.Fleet {
	t.Helper()
	fleet, stop, err := startFleet(options)
	check.Must(t, err)
	t.Cleanup(stop)
	return fleet
}

// Connect starts a Fleet that is connected to all workers by their names. Each worker gets its Connection. A Scene
// waits until they are connected.
func (s *Stage) Connect(options remote.Options) (err error) {
	if s.Fleet, err = s.StartFleet(options); err != nil {
		return err
	}
	for _, worker := range s.Workers {
		worker.Join(s.Fleet, worker.Name())
	}
	return nil
}

// Join connects a fleet to the server, with all rights. It sets the server's Connection.
func (s *Server) Join(fleet *remote.Fleet, name v1alpha1.ClusterName) {
	fleet.Ensure(name, remote.Credentials{Config: s.Cluster.Config, Fingerprint: "admin"}, s.ID)
	s.Connection, _ = fleet.Get(name)
}

// ConnectAsHub starts a Fleet that is connected to the only worker, with the rights that these parts of config grant a hub there.
func (s *Stage) ConnectAsHub(ctx context.Context, parts ...string) error {
	worker := s.Workers[0]
	if err := worker.installConfig(ctx, parts...); err != nil {
		return err
	}
	account := types.NamespacedName{Namespace: SystemNamespace, Name: "trainyard-hub"}
	kubeconfig, err := worker.Cluster.ServiceAccountKubeconfig(ctx, account, time.Hour)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err
	}
	if s.Fleet, err = s.StartFleet(remote.Options{Scheme: s.Scheme}); err != nil {
		return err
	}
	s.Fleet.Ensure(worker.Name(), remote.Credentials{Config: config, Fingerprint: "hub"}, worker.ID)
	worker.Connection, _ = s.Fleet.Get(worker.Name())
	return nil
}

// AwaitConnected waits until a connection works.
func AwaitConnected(t testing.TB, connection *remote.Cluster) {
	t.Helper()
	check.Eventually(t, "connection", func(g gomega.Gomega) {
		g.Expect(connection.Status().State).To(gomega.Equal(remote.Connected), connection.Status().Message)
	})
}

// StartCaches starts the hub's client and caches as a manager has them, with all indexes: Cached and Cache.
func (s *Stage) StartCaches(ctx context.Context, changes ...cluster.Option) error {
	hub, err := cluster.New(s.Hub.Cluster.Config, append([]cluster.Option{func(o *cluster.Options) {
		o.Scheme, o.Client.Cache = s.Scheme, &client.CacheOptions{Unstructured: true}
	}}, changes...)...)
	if err != nil {
		return err
	}
	if err := records.AddIndexes(ctx, hub.GetFieldIndexer()); err != nil {
		return err
	}
	s.Cached, s.Cache = hub.GetClient(), hub.GetCache()
	s.Cleanup(Run(hub))
	return nil
}

// InstallConfig applies parts of config to the hub.
func (s *Stage) InstallConfig(ctx context.Context, parts ...string) error {
	return s.Hub.installConfig(ctx, parts...)
}

func (s *Server) installConfig(ctx context.Context, parts ...string) error {
	module, err := clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := s.Cluster.ApplyKustomization(ctx, filepath.Join(module, "config", part)); err != nil {
			return err
		}
	}
	return nil
}

// ManagerAccount is a configuration for the manager's service account, whose rights are in the part rbac of config.
func (s *Stage) ManagerAccount() *rest.Config {
	account := rest.CopyConfig(s.Hub.Cluster.Config)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + SystemNamespace + ":trainyard-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	return account
}

// NewManager returns a manager of the hub with all indexes, and without metrics. It does not run.
func (s *Stage) NewManager(ctx context.Context, as *rest.Config, changes ...func(*ctrl.Options)) (ctrl.Manager, error) {
	options := ctrl.Options{
		Scheme: s.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	for _, change := range changes {
		change(&options)
	}
	mgr, err := ctrl.NewManager(as, options)
	if err != nil {
		return nil, err
	}
	return mgr, records.AddIndexes(ctx, mgr.GetFieldIndexer())
}

// NewManager is NewManager of the Stage for one test.
func (s *Scene) NewManager(t testing.TB, as *rest.Config, changes ...func(*ctrl.Options)) ctrl.Manager {
	t.Helper()
	mgr, err := s.Stage.NewManager(t.Context(), as, changes...)
	check.Must(t, err)
	return mgr
}

// RunFor runs a manager until the test ends, or until the returned function is called.
func RunFor(t testing.TB, mgr ctrl.Manager) (stop func()) {
	t.Helper()
	end := Run(mgr)
	stop = sync.OnceFunc(func() {
		check.Must(t, end())
	})
	t.Cleanup(stop)
	return stop
}
