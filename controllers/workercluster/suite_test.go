// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/perworker"
	"github.com/trainyard/trainyard/controllers/workercluster"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	namespace = "trainyard-system"
	// patience is for things that are quick, on a machine that may be busy.
	patience = 60 * time.Second
)

// environment is a hub with the caches of a manager, and two workers without controllers.
type environment struct {
	servers            []*clusters.Cluster
	hub, first, second *clusters.Cluster
	admins             map[*clusters.Cluster]client.Client // without caches
	ids                map[*clusters.Cluster]types.UID
	cached             client.Client
	endCache           func() error
}

var shared struct {
	once sync.Once
	env  *environment
	err  error
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if shared.env != nil {
		if err := shared.env.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func startEnvironment() (*environment, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var crds []string
	for _, dir := range []struct{ module, path string }{
		{"github.com/kubeflow/trainer/v2", "manifests/base/crds"},
		{"sigs.k8s.io/jobset", "config/components/crd/bases"},
		{"github.com/trainyard/trainyard", "config/crd/bases"},
	} {
		root, err := clusters.ModuleDir(ctx, dir.module)
		if err != nil {
			return nil, err
		}
		crds = append(crds, filepath.Join(root, dir.path))
	}
	started, err := clusters.StartAll(ctx, clusters.Options{Name: "hub", CRDs: crds},
		clusters.Options{Name: "first", CRDs: crds[:2]}, clusters.Options{Name: "second", CRDs: crds[:2]})
	if err != nil {
		return nil, err
	}
	e := &environment{
		servers: started, hub: started[0], first: started[1], second: started[2],
		admins: map[*clusters.Cluster]client.Client{}, ids: map[*clusters.Cluster]types.UID{},
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return e, err
	}
	for _, server := range started {
		if e.admins[server], err = client.New(server.Config, client.Options{Scheme: scheme}); err != nil {
			return e, err
		}
		identity := &corev1.Namespace{}
		if err := e.admins[server].Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, identity); err != nil {
			return e, err
		}
		e.ids[server] = identity.UID
	}
	if err := e.admins[e.hub].Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return e, err
	}
	return e, e.startCache(ctx, scheme)
}

// startCache starts what the manager has: a cached client, and the index of live Dispatches.
func (e *environment) startCache(ctx context.Context, scheme *runtime.Scheme) error {
	hub, err := cluster.New(e.hub.Config, func(o *cluster.Options) { o.Scheme = scheme })
	if err != nil {
		return err
	}
	err = hub.GetFieldIndexer().IndexField(ctx, &v1alpha1.Dispatch{}, perworker.IndexLive, perworker.LiveClusterOf)
	if err != nil {
		return err
	}
	e.cached = hub.GetClient()
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Start(running) }()
	e.endCache = func() error {
		cancel()
		return <-ended
	}
	return nil
}

func (e *environment) stop() error {
	var err error
	if e.endCache != nil {
		err = e.endCache()
	}
	return errors.Join(err, clusters.StopAll(e.servers...))
}

// roster has the workers that have joined.
type roster map[v1alpha1.ClusterName]*remote.Cluster

// Join implements workercluster.Members.
func (r roster) Join(name v1alpha1.ClusterName, connection *remote.Cluster) error {
	r[name] = connection
	return nil
}

// Leave implements workercluster.Members.
func (r roster) Leave(name v1alpha1.ClusterName) { delete(r, name) }

// scene is a fleet of one test, and the reconciler that it calls.
type scene struct {
	*environment
	clock      *clocktesting.FakeClock
	fleet      *remote.Fleet
	joined     roster
	reconciler *workercluster.Reconciler
}

func newScene(t *testing.T) *scene {
	t.Helper()
	shared.once.Do(func() { shared.env, shared.err = startEnvironment() })
	if shared.err != nil {
		t.Fatalf("these tests need real API servers (make controlplane builds them): %v", shared.err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(ctx, remote.Options{HubID: "hub-1", ProbeInterval: time.Second})
	must(t, err)
	t.Cleanup(func() {
		cancel()
		fleet.Wait()
	})
	s := &scene{environment: shared.env, clock: clocktesting.NewFakeClock(time.Now()), fleet: fleet, joined: roster{}}
	s.reconciler = workercluster.NewReconciler(workercluster.Options{
		Hub: s.cached, HubID: s.ids[s.hub], Fleet: fleet, Members: s.joined, Clock: s.clock,
		Credentials: &kubeconfigs.Loader{Reader: s.cached, Namespace: namespace, Clock: s.clock},
		Files:       kubeconfigs.NewFileWatcher(logr.Discard(), func(string) {}),
	})
	return s
}

// register creates a WorkerCluster, with credentials for a cluster. Both go with the test.
func (s *scene) register(t *testing.T, name string, leadsTo *clusters.Cluster) {
	t.Helper()
	admin := s.admins[s.hub]
	s.writeCredentials(t, name, leadsTo)
	worker := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{
			KubeconfigSecretRef: &v1alpha1.SecretReference{Name: name},
		}},
	}
	must(t, admin.Create(t.Context(), worker))
	t.Cleanup(func() { s.unregister(t, name) })
}

// unregister deletes a WorkerCluster and its credentials, and returns when the hub's cache shows it.
func (s *scene) unregister(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // It is for cleanups too.
	for _, object := range []client.Object{
		&v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
	} {
		must(t, client.IgnoreNotFound(s.admins[s.hub].Delete(ctx, object)))
		gomega.NewWithT(t).Eventually(func() bool {
			return apierrors.IsNotFound(s.cached.Get(ctx, client.ObjectKeyFromObject(object), object))
		}, patience, 10*time.Millisecond).Should(gomega.BeTrue(), "the cache forgets %s", name)
	}
}

// writeCredentials makes the Secret of a WorkerCluster lead to a cluster.
func (s *scene) writeCredentials(t *testing.T, name string, leadsTo *clusters.Cluster) {
	t.Helper()
	kubeconfig, err := leadsTo.KubeconfigBytes()
	must(t, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{kubeconfigs.SecretKey: kubeconfig},
	}
	err = s.admins[s.hub].Create(t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = s.admins[s.hub].Update(t.Context(), secret)
	}
	must(t, err)
}

// reconcile calls the reconciler, which must not fail, and returns the WorkerCluster as it is then.
func (s *scene) reconcile(t *testing.T, name string) (*v1alpha1.WorkerCluster, reconcile.Result) {
	t.Helper()
	key := client.ObjectKey{Name: name}
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	must(t, err)
	worker := &v1alpha1.WorkerCluster{}
	must(t, client.IgnoreNotFound(s.admins[s.hub].Get(t.Context(), key, worker)))
	return worker, result
}

// become reconciles until the WorkerCluster is Ready, or not, for this reason, and nothing more is written.
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
