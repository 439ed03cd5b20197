// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/failover"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const clusterID = types.UID("cluster-id")

var must, eventually = check.Must, check.Eventually

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error { return s.StartCaches(ctx) })

func TestMain(m *testing.M) { shared.Main(m) }

// connections returns the contacts that a test sets.
type connections struct {
	mu       sync.Mutex
	contacts map[v1alpha1.ClusterName]failover.Contact
	notify   []func(v1alpha1.ClusterName)
}

func (c *connections) Contact(worker v1alpha1.ClusterName) failover.Contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contacts[worker]
}

func (c *connections) Subscribe(notify func(v1alpha1.ClusterName)) (cancel func()) {
	c.notify = append(c.notify, notify)
	return func() {}
}

func (c *connections) set(worker v1alpha1.ClusterName, contact failover.Contact) {
	c.mu.Lock()
	c.contacts[worker] = contact
	c.mu.Unlock()
	for _, notify := range c.notify {
		notify(worker)
	}
}

// agents returns the times that a test sets.
type agents struct {
	mu     sync.Mutex
	stop   map[v1alpha1.ClusterName]time.Time
	notify []func(v1alpha1.ClusterName)
}

func (a *agents) StoppedAt(worker v1alpha1.ClusterName, id types.UID) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.stop[worker]
	return at, ok && id == clusterID
}

func (a *agents) Subscribe(notify func(v1alpha1.ClusterName)) (cancel func()) {
	a.notify = append(a.notify, notify)
	return func() {}
}

func (a *agents) set(worker v1alpha1.ClusterName, at time.Time) {
	a.mu.Lock()
	a.stop[worker] = at
	a.mu.Unlock()
	for _, notify := range a.notify {
		notify(worker)
	}
}

// scene has a worker with jobs, a worker that answers, and the reconciler that a test calls.
type scene struct {
	*stage.Scene
	worker   v1alpha1.ClusterName
	contacts *connections
	agents   *agents
	// options are the options of the reconciler. A change by a test takes effect at the next restart.
	options    failover.Options
	reconciler *failover.Reconciler
}

// newScene makes a scene whose worker was lost a minute ago, in silence, and whose agent has stopped the fenced copies.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		Scene:    shared.Get(t).Scene(t),
		contacts: &connections{contacts: map[v1alpha1.ClusterName]failover.Contact{}},
		agents:   &agents{stop: map[v1alpha1.ClusterName]time.Time{}},
	}
	s.worker = v1alpha1.ClusterName("worker-of-" + s.Namespace)
	s.register(t, s.worker)
	s.register(t, s.peer())
	s.answer(t, s.peer())
	s.lose(t, s.worker, time.Minute)
	s.options = failover.Options{
		Hub: s.Cached, HubReader: s.Hub.Admin, Connections: s.contacts, Agents: s.agents, Recorder: s.Events, Clock: s.Clock,
	}
	s.restart()
	return s
}

// peer is the worker that answers.
func (s *scene) peer() v1alpha1.ClusterName { return s.worker + "-peer" }

// restart starts a new process without memory. It doubts its caches for a while.
func (s *scene) restart() { s.reconciler = failover.NewReconciler(s.options) }

// leader returns the manager's client as cmd/manager makes it: it writes only while leads is true.
func (s *scene) leader(t *testing.T, leads func() bool) client.Client {
	t.Helper()
	config := rest.CopyConfig(s.Hub.Cluster.Config)
	config.Wrap(remote.OnlyLeaderWrites(leads))
	c, err := client.New(config, client.Options{Scheme: s.Scheme, Cache: &client.CacheOptions{Reader: s.Cache, Unstructured: true}})
	must(t, err)
	return c
}

// register registers a worker of which nothing is known yet.
func (s *scene) register(t *testing.T, name v1alpha1.ClusterName) {
	t.Helper()
	s.Register(t, name, func(worker *v1alpha1.WorkerCluster) { worker.Status = v1alpha1.WorkerClusterStatus{} })
}

// is writes the Ready condition of a worker, as workercluster would.
func (s *scene) is(t *testing.T, name v1alpha1.ClusterName, reason string, change func(*v1alpha1.WorkerCluster)) {
	t.Helper()
	pinned := func(worker *v1alpha1.WorkerCluster) { worker.Status.ClusterID = clusterID }
	s.ChangeWorker(t, name, pinned, s.Ready(reason), change)
}

// lose makes a worker Unreachable, since this long ago.
func (s *scene) lose(t *testing.T, name v1alpha1.ClusterName, ago time.Duration) {
	t.Helper()
	since := s.Clock.Now().Add(-ago)
	s.is(t, name, v1alpha1.ReasonUnreachable, func(worker *v1alpha1.WorkerCluster) {
		worker.Status.LastSeenTime = &metav1.Time{Time: since}
	})
	s.contacts.set(name, failover.Contact{UnreachableSince: since, SilentSince: since})
	s.agents.set(name, since)
}

// answer makes a worker connected.
func (s *scene) answer(t *testing.T, name v1alpha1.ClusterName) {
	t.Helper()
	s.contacts.set(name, failover.Contact{Answers: true})
	s.is(t, name, v1alpha1.ReasonConnected, func(worker *v1alpha1.WorkerCluster) { worker.Status.LastSeenTime = nil })
}

// forget sets the annotation that says that a cluster is forgotten.
func (s *scene) forget(t *testing.T, id types.UID) {
	t.Helper()
	s.ChangeWorker(t, s.worker, func(worker *v1alpha1.WorkerCluster) {
		metav1.SetMetaDataAnnotation(&worker.ObjectMeta, v1alpha1.AnnotationForget, string(id))
	})
}

// paused returns the condition FailoverPaused of the worker, nil if there is none.
func (s *scene) paused(t *testing.T) *metav1.Condition {
	t.Helper()
	return meta.FindStatusCondition(s.WorkerCluster(t, s.worker).Status.Conditions, v1alpha1.WorkerClusterFailoverPaused)
}

// place creates a job that runs on the worker, according to its TrainJob and its Dispatch.
func (s *scene) place(t *testing.T, name string, failover v1alpha1.Failover) client.ObjectKey {
	t.Helper()
	job := s.Submit(t, name)
	stage.Report(t, s.Hub.Admin, s.job(t, s.Key(name)), "", 1)
	d := s.Place(t, job, s.worker, func(d *v1alpha1.Dispatch) {
		d.Finalizers = []string{v1alpha1.FinalizerCopy}
		d.Spec.ClusterID, d.Spec.Failover = clusterID, failover
	})
	d.Status.Reason, d.Status.CopyUID = v1alpha1.ReasonCopied, "copy"
	s.Copied(t, d)
	return s.Key(name)
}

// reconcile calls the reconciler with caches that are up to date, and returns when it wants to reconcile again.
func (s *scene) reconcile(t *testing.T) time.Duration {
	t.Helper()
	after, err := s.try(t)
	must(t, err)
	return after
}

func (s *scene) try(t *testing.T) (time.Duration, error) {
	t.Helper()
	s.Settle(t, s.Cached)
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: string(s.worker)}})
	return result.RequeueAfter, err
}

func (s *scene) job(t *testing.T, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	return stage.ReadTrainJob(t, s.Hub.Admin, key)
}

// tombstones returns the Tombstones of the scene's jobs.
func (s *scene) tombstones(t *testing.T) []v1alpha1.Tombstone {
	t.Helper()
	var list v1alpha1.TombstoneList
	must(t, s.Hub.Admin.List(t.Context(), &list))
	return slices.DeleteFunc(list.Items, func(tombstone v1alpha1.Tombstone) bool { return tombstone.Spec.Namespace != s.Namespace })
}

// lost is the reason of the True condition WorkerLost, empty if there is none.
func lost(d *v1alpha1.Dispatch) string {
	if condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWorkerLost); condition != nil {
		return condition.Reason
	}
	return ""
}
