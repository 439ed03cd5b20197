// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	namespace = "trainyard-system"
	// patience is a timeout for quick things on a machine that may be busy.
	patience = 60 * time.Second
)

// environment is a hub with the caches of a manager, and two workers without controllers.
type environment struct {
	hub, first, second *stage.Server
	cached             client.Client
}

var shared = stage.ShareEnvironment(newEnvironment, "first", "second")

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *stage.Stage) (*environment, error) {
	e := &environment{hub: set.Hub, first: set.Workers[0], second: set.Workers[1]}
	if err := e.hub.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	return e, e.startCache(ctx, set)
}

// startCache starts the manager's cached client, with the index of live Dispatches.
func (e *environment) startCache(ctx context.Context, set *stage.Stage) error {
	hub, err := cluster.New(e.hub.Cluster.Config, func(o *cluster.Options) { o.Scheme = set.Scheme })
	if err != nil {
		return err
	}
	if err := records.AddIndexes(ctx, hub.GetFieldIndexer()); err != nil {
		return err
	}
	e.cached = hub.GetClient()
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Start(running) }()
	set.Cleanup(func() error {
		cancel()
		return <-ended
	})
	return nil
}

// roster has the workers that have joined.
type roster map[v1alpha1.ClusterName]*remote.Cluster

func (r roster) Join(name v1alpha1.ClusterName, connection *remote.Cluster) error {
	r[name] = connection
	return nil
}

func (r roster) Leave(name v1alpha1.ClusterName) { delete(r, name) }

// agent is what a test says about the agents of its workers.
type agent struct {
	clusterID types.UID
	presence  protocol.Presence
	longest   time.Duration
}

func (a *agent) Agent(_ v1alpha1.ClusterName, clusterID types.UID) (protocol.Presence, time.Duration) {
	if clusterID != a.clusterID {
		return protocol.PresenceUnknown, 0
	}
	return a.presence, a.longest
}

func (a *agent) Subscribe(func(v1alpha1.ClusterName)) (cancel func()) { return func() {} }

// scene has the fleet of one test, and the reconciler that the test calls.
type scene struct {
	*environment
	clock      *clocktesting.FakeClock
	fleet      *remote.Fleet
	joined     roster
	agent      *agent
	reconciler *workercluster.Reconciler
}

func newScene(t *testing.T) *scene {
	t.Helper()
	e := shared.Get(t)
	ctx, cancel := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(ctx, remote.Options{HubID: "hub-1", ProbeInterval: time.Second})
	check.Must(t, err)
	t.Cleanup(func() {
		cancel()
		fleet.Wait()
	})
	s := &scene{environment: e, clock: clocktesting.NewFakeClock(time.Now()), fleet: fleet, joined: roster{}, agent: &agent{}}
	s.reconciler = workercluster.NewReconciler(workercluster.Options{
		Hub: s.cached, HubID: s.hub.ID, Fleet: fleet, Members: s.joined, Agents: s.agent, Clock: s.clock,
		Credentials: &kubeconfigs.Loader{Reader: s.cached, Namespace: namespace, Clock: s.clock},
		Files:       kubeconfigs.NewFileWatcher(logr.Discard(), func(string) {}),
	})
	return s
}

// register creates a WorkerCluster and credentials for a cluster. It deletes both when the test ends.
func (s *scene) register(t *testing.T, name string, leadsTo *stage.Server) {
	t.Helper()
	admin := s.hub.Admin
	s.writeCredentials(t, name, leadsTo)
	worker := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{
			KubeconfigSecretRef: &v1alpha1.SecretReference{Name: name},
		}},
	}
	check.Must(t, admin.Create(t.Context(), worker))
	t.Cleanup(func() { s.unregister(t, name) })
}

// unregister deletes a WorkerCluster and its credentials, and waits until the hub's cache shows that.
func (s *scene) unregister(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // Cleanups call this too.
	for _, object := range []client.Object{
		&v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
	} {
		check.Must(t, client.IgnoreNotFound(s.hub.Admin.Delete(ctx, object)))
		gomega.NewWithT(t).Eventually(func() bool {
			return apierrors.IsNotFound(s.cached.Get(ctx, client.ObjectKeyFromObject(object), object))
		}, patience, 10*time.Millisecond).Should(gomega.BeTrue(), "the cache forgets %s", name)
	}
}

// writeCredentials makes the Secret of a WorkerCluster lead to a cluster.
func (s *scene) writeCredentials(t *testing.T, name string, leadsTo *stage.Server) {
	t.Helper()
	kubeconfig, err := leadsTo.Cluster.KubeconfigBytes()
	check.Must(t, err)
	s.writeKubeconfig(t, name, kubeconfig)
}

func (s *scene) writeKubeconfig(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{kubeconfigs.SecretKey: kubeconfig},
	}
	err := s.hub.Admin.Create(t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = s.hub.Admin.Update(t.Context(), secret)
	}
	check.Must(t, err)
}

// reconcile calls the reconciler, which must not fail, and returns the WorkerCluster after that.
func (s *scene) reconcile(t *testing.T, name string) (*v1alpha1.WorkerCluster, reconcile.Result) {
	t.Helper()
	key := client.ObjectKey{Name: name}
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	check.Must(t, err)
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, client.IgnoreNotFound(s.hub.Admin.Get(t.Context(), key, worker)))
	return worker, result
}

// become reconciles until the WorkerCluster has this Ready reason and nothing more is written.
func (s *scene) become(t *testing.T, name, reason string) *v1alpha1.WorkerCluster {
	t.Helper()
	var worker *v1alpha1.WorkerCluster
	gomega.NewWithT(t).Eventually(func() string {
		version := ""
		if worker != nil {
			version = worker.ResourceVersion
		}
		worker, _ = s.reconcile(t, name)
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		switch {
		case ready == nil:
			return "no condition"
		case ready.Reason != reason:
			return ready.Reason + ": " + ready.Message
		case worker.ResourceVersion != version:
			return "written"
		}
		return reason
	}, patience, 20*time.Millisecond).Should(gomega.Equal(reason), "WorkerCluster %s", name)
	return worker
}
