// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const patience = check.Patience

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(s.InstallConfig(ctx, "namespace"), s.StartCaches(ctx))
}, "first", "second")

func TestMain(m *testing.M) { shared.Main(m) }

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
	state     protocol.AgentState
	longest   time.Duration
}

func (a *agent) Agent(_ v1alpha1.ClusterName, clusterID types.UID) (protocol.AgentState, time.Duration) {
	if clusterID != a.clusterID {
		return protocol.AgentUnknown, 0
	}
	return a.state, a.longest
}

func (a *agent) Subscribe(func(v1alpha1.ClusterName)) (cancel func()) { return func() {} }

// scene has two workers, the fleet of one test, and the reconciler that the test calls.
type scene struct {
	*stage.Scene
	first, second *stage.Server
	fleet         *remote.Fleet
	joined        roster
	agent         *agent
	reconciler    *workercluster.Reconciler
}

func newScene(t *testing.T, changes ...func(*remote.Options)) *scene {
	t.Helper()
	var options remote.Options
	for _, change := range changes {
		change(&options)
	}
	s := &scene{Scene: shared.Get(t).Scene(t), fleet: stage.StartFleet(t, options), joined: roster{}, agent: &agent{}}
	s.first, s.second = s.Workers[0], s.Workers[1]
	s.reconciler = workercluster.NewReconciler(workercluster.Options{
		Hub: s.Cached, HubID: s.Hub.ID, Fleet: s.fleet, Members: s.joined, Agents: s.agent, Clock: s.Clock,
		Credentials: &kubeconfigs.Loader{Reader: s.Cached, Namespace: stage.SystemNamespace, Clock: s.Clock},
		Files:       kubeconfigs.NewFileWatcher(logr.Discard(), func(string) {}),
	})
	return s
}

// register creates a WorkerCluster and credentials for a cluster. It deletes both when the test ends.
func (s *scene) register(t *testing.T, name string, leadsTo *stage.Server) {
	t.Helper()
	s.writeCredentials(t, name, leadsTo)
	s.Register(t, v1alpha1.ClusterName(name), stage.FromSecret)
	t.Cleanup(func() { s.unregister(t, name) })
}

// change changes a WorkerCluster, and waits until the hub's cache shows it.
func (s *scene) change(t *testing.T, name v1alpha1.ClusterName, change func(*v1alpha1.WorkerCluster)) {
	t.Helper()
	s.ChangeWorker(t, name, change)
	s.Settle(t, s.Cached)
}

// accept agrees to the identity of another cluster.
func (s *scene) accept(t *testing.T, name v1alpha1.ClusterName, id types.UID) {
	t.Helper()
	s.change(t, name, func(worker *v1alpha1.WorkerCluster) {
		metav1.SetMetaDataAnnotation(&worker.ObjectMeta, v1alpha1.AnnotationAcceptIdentity, string(id))
	})
}

// unregister deletes a WorkerCluster and its credentials, and waits until the hub's cache shows that.
func (s *scene) unregister(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // Cleanups call this too.
	for _, object := range []client.Object{
		&v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stage.SystemNamespace, Name: name}},
	} {
		check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(ctx, object)))
		gomega.NewWithT(t).Eventually(func() bool {
			return apierrors.IsNotFound(s.Cached.Get(ctx, client.ObjectKeyFromObject(object), object))
		}, patience, 10*time.Millisecond).Should(gomega.BeTrue(), "the cache forgets %s", name)
	}
}

// writeCredentials makes the Secret of a WorkerCluster lead to a cluster.
func (s *scene) writeCredentials(t *testing.T, name string, leadsTo *stage.Server) {
	t.Helper()
	kubeconfig, err := leadsTo.Cluster.KubeconfigBytes()
	check.Must(t, err)
	s.WriteKubeconfig(t, name, kubeconfig)
}

// reconcile calls the reconciler, which must not fail, and returns the WorkerCluster after that.
func (s *scene) reconcile(t *testing.T, name string) (*v1alpha1.WorkerCluster, reconcile.Result) {
	t.Helper()
	key := client.ObjectKey{Name: name}
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	check.Must(t, err)
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Get(t.Context(), key, worker)))
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
