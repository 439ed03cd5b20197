// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/failover"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const clusterID = types.UID("cluster-id")

// environment is a hub without controllers. The tests do by hand what controllers would do.
type environment struct {
	server *stage.Server
	// hub is the admin's client, without caches. cached is the manager's client, and cache its caches.
	hub    client.WithWatch
	cached client.Client
	cache  client.Reader
	scheme *runtime.Scheme
}

var must, eventually = check.Must, check.Eventually

var shared = stage.ShareEnvironment(newEnvironment)

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *stage.Stage) (*environment, error) {
	hub, err := cluster.New(set.Hub.Cluster.Config, func(o *cluster.Options) {
		o.Scheme = set.Scheme
		o.Client.Cache = &client.CacheOptions{Unstructured: true}
	})
	if err != nil {
		return nil, err
	}
	if err := records.AddIndexes(ctx, hub.GetFieldIndexer()); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Start(running) }()
	set.Cleanup(func() error {
		cancel()
		return <-ended
	})
	return &environment{
		server: set.Hub, hub: set.Hub.Admin, cached: hub.GetClient(), cache: hub.GetCache(), scheme: set.Scheme,
	}, nil
}

// leader returns the manager's client as cmd/manager makes it: it writes only while leads is true.
func (e *environment) leader(t *testing.T, leads func() bool) client.Client {
	t.Helper()
	config := rest.CopyConfig(e.server.Cluster.Config)
	config.Wrap(remote.OnlyLeaderWrites(leads))
	c, err := client.New(config, client.Options{Scheme: e.scheme, Cache: &client.CacheOptions{Reader: e.cache, Unstructured: true}})
	must(t, err)
	return c
}

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

// recorder keeps Events as "kind/name reason: note".
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object, _ := meta.Accessor(regarding)
	r.events = append(r.events, fmt.Sprintf("%s %s: %s", object.GetName(), reason, fmt.Sprintf(note, args...)))
}

// about returns the Events of an object.
func (r *recorder) about(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, event := range r.events {
		if strings.HasPrefix(event, name+" ") {
			found = append(found, event)
		}
	}
	return found
}

// scene has a worker with jobs in their own namespace, a worker that answers, and the reconciler that a test calls.
type scene struct {
	*environment
	namespace string
	worker    v1alpha1.ClusterName
	clock     *clocktesting.FakeClock
	contacts  *connections
	agents    *agents
	events    *recorder
	// options are the options of the reconciler. A change by a test takes effect at the next restart.
	options    failover.Options
	reconciler *failover.Reconciler
}

var scenes atomic.Int32

// newScene makes a scene whose worker was lost a minute ago, in silence, and whose agent has stopped the fenced copies.
func newScene(t *testing.T) *scene {
	t.Helper()
	e := shared.Get(t)
	n := scenes.Add(1)
	s := &scene{
		environment: e, namespace: fmt.Sprintf("test-%d", n), worker: v1alpha1.ClusterName(fmt.Sprintf("worker-%d", n)),
		clock:    clocktesting.NewFakeClock(time.Now()),
		contacts: &connections{contacts: map[v1alpha1.ClusterName]failover.Contact{}},
		agents:   &agents{stop: map[v1alpha1.ClusterName]time.Time{}},
		events:   &recorder{},
	}
	must(t, e.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
	s.register(t, s.worker)
	s.register(t, s.peer())
	s.answer(t, s.peer())
	s.lose(t, s.worker, time.Minute)
	s.options = failover.Options{
		Hub: e.cached, HubReader: e.hub, Connections: s.contacts, Agents: s.agents, Recorder: s.events, Clock: s.clock,
	}
	s.restart()
	return s
}

// peer is the worker that answers.
func (s *scene) peer() v1alpha1.ClusterName { return s.worker + "-peer" }

// restart starts a new process without memory. It doubts its caches for a while.
func (s *scene) restart() { s.reconciler = failover.NewReconciler(s.options) }

// register creates a WorkerCluster and deletes it at the end of the test, so that other tests do not count it.
func (s *scene) register(t *testing.T, name v1alpha1.ClusterName) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(name)},
		Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{
			KubeconfigSecretRef: &v1alpha1.SecretReference{Name: string(name)},
		}},
	}
	must(t, s.hub.Create(t.Context(), worker))
	t.Cleanup(func() { s.unregister(t, name) })
}

func (s *scene) unregister(t *testing.T, name v1alpha1.ClusterName) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: string(name)}}
	must(t, client.IgnoreNotFound(s.hub.Delete(context.WithoutCancel(t.Context()), worker)))
}

// is writes the Ready condition of a worker, as workercluster would.
func (s *scene) is(t *testing.T, name v1alpha1.ClusterName, reason string, change func(*v1alpha1.WorkerCluster)) {
	t.Helper()
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonConnected {
		status = metav1.ConditionTrue
	}
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		worker := s.workerCluster(t, name)
		worker.Status.ClusterID = clusterID
		meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkerClusterReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(s.clock.Now()),
		})
		change(worker)
		return s.hub.Status().Update(t.Context(), worker)
	}))
}

// lose makes a worker Unreachable, since this long ago.
func (s *scene) lose(t *testing.T, name v1alpha1.ClusterName, ago time.Duration) {
	t.Helper()
	since := s.clock.Now().Add(-ago)
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
	worker := s.workerCluster(t, s.worker)
	metav1.SetMetaDataAnnotation(&worker.ObjectMeta, v1alpha1.AnnotationForget, string(id))
	must(t, s.hub.Update(t.Context(), worker))
}

func (s *scene) workerCluster(t *testing.T, name v1alpha1.ClusterName) *v1alpha1.WorkerCluster {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	must(t, s.hub.Get(t.Context(), client.ObjectKey{Name: string(name)}, worker))
	return worker
}

// paused returns the condition FailoverPaused of the worker, nil if there is none.
func (s *scene) paused(t *testing.T) *metav1.Condition {
	t.Helper()
	return meta.FindStatusCondition(s.workerCluster(t, s.worker).Status.Conditions, v1alpha1.WorkerClusterFailoverPaused)
}

// place creates a job that runs on the worker, according to its TrainJob and its Dispatch.
func (s *scene) place(t *testing.T, name string, failover v1alpha1.Failover) client.ObjectKey {
	t.Helper()
	job := trainjobs.New()
	job.SetNamespace(s.namespace)
	job.SetName(name)
	job.Object["spec"] = map[string]any{
		"managedBy": v1alpha1.ManagedByMultiKueue, "runtimeRef": map[string]any{"name": "torch-distributed"},
	}
	must(t, s.hub.Create(t.Context(), job))
	s.speak(t, job, "")
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Finalizers: []string{v1alpha1.FinalizerCopy}},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: name, UID: job.GetUID()}, Cluster: s.worker, ClusterID: clusterID, Attempt: 1,
			Failover: failover,
		},
	}
	must(t, s.hub.Create(t.Context(), d))
	d.Status = v1alpha1.DispatchStatus{
		Phase: v1alpha1.PhaseRunning, Reason: v1alpha1.ReasonCopied, Cluster: s.worker, Attempt: 1, CopyUID: "copy",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCopied, LastTransitionTime: metav1.Now(),
		}},
	}
	must(t, s.hub.Status().Update(t.Context(), d))
	return client.ObjectKeyFromObject(d)
}

// speak writes a TrainJob's status as mirror does for a copy that runs or has ended.
func (s *scene) speak(t *testing.T, job *unstructured.Unstructured, end string) {
	t.Helper()
	status := map[string]any{"jobsStatus": []any{map[string]any{
		"name": "node", "active": int64(1), "ready": int64(1), "succeeded": int64(0), "failed": int64(0), "suspended": int64(0),
	}}}
	if end != "" {
		status["conditions"] = []any{map[string]any{
			"type": end, "status": "True", "reason": "Because", "message": "it is " + end, "lastTransitionTime": "2026-01-02T03:04:05Z",
		}}
	}
	job.Object["status"] = status
	must(t, s.hub.Status().Update(t.Context(), job))
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
	s.settle(t)
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: string(s.worker)}})
	return result.RequeueAfter, err
}

// settle waits until the caches show the state of the API server.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	eventually(t, "the caches", func(g gomega.Gomega) {
		g.Expect(s.versions(t, g, s.cached)).To(gomega.Equal(s.versions(t, g, s.hub)))
	})
}

// versions returns the versions of all objects that the reconciler may write.
func (s *scene) versions(t *testing.T, g gomega.Gomega, reader client.Reader) []string {
	t.Helper()
	var all []string
	for _, list := range []client.ObjectList{
		trainjobs.NewList(), &v1alpha1.DispatchList{}, &v1alpha1.WorkerClusterList{}, &v1alpha1.TombstoneList{},
	} {
		g.Expect(reader.List(t.Context(), list, s.scope(list)...)).To(gomega.Succeed())
		items, err := meta.ExtractList(list)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for _, item := range items {
			object := item.(client.Object)
			all = append(all, fmt.Sprintf("%T %s %s", object, object.GetName(), object.GetResourceVersion()))
		}
	}
	slices.Sort(all)
	return all
}

// scope returns list options: namespaced kinds are listed in the scene's namespace only.
func (s *scene) scope(list client.ObjectList) []client.ListOption {
	switch list.(type) {
	case *v1alpha1.WorkerClusterList, *v1alpha1.TombstoneList:
		return nil
	}
	return []client.ListOption{client.InNamespace(s.namespace)}
}

// dispatch reads the Dispatch from the API server. It returns nil if there is none.
func (s *scene) dispatch(t *testing.T, key client.ObjectKey) *v1alpha1.Dispatch {
	t.Helper()
	return check.Dispatch(t, s.hub, key)
}

func (s *scene) job(t *testing.T, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	job := trainjobs.New()
	must(t, s.hub.Get(t.Context(), key, job))
	return job
}

// tombstones returns the Tombstones of the scene's jobs.
func (s *scene) tombstones(t *testing.T) []v1alpha1.Tombstone {
	t.Helper()
	var list v1alpha1.TombstoneList
	must(t, s.hub.List(t.Context(), &list))
	return slices.DeleteFunc(list.Items, func(tombstone v1alpha1.Tombstone) bool { return tombstone.Spec.Namespace != s.namespace })
}

// lost is the reason of the True condition WorkerLost, empty if there is none.
func lost(d *v1alpha1.Dispatch) string {
	if condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWorkerLost); condition != nil {
		return condition.Reason
	}
	return ""
}
