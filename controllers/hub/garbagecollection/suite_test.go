// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"fmt"
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
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/servers"
)

const (
	hubID      = "hub-1"
	workerName = v1alpha1.ClusterName("worker")
	otherName  = v1alpha1.ClusterName("other")
	jobName    = "job"
	retention  = 10 * time.Minute
)

// environment is a hub and two workers without controllers. The tests do by hand what controllers would do.
type environment struct {
	hubServer *servers.Server
	// hub is the admin's client, without caches.
	hub     client.Client
	fleet   *remote.Fleet
	workers map[v1alpha1.ClusterName]*worker
	scheme  *runtime.Scheme
}

type worker struct {
	name v1alpha1.ClusterName
	*servers.Server
	connection *remote.Cluster
}

var must, eventually, read = check.Must, check.Eventually, check.TrainJob

var shared = servers.Share(newEnvironment, string(workerName), string(otherName))

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *servers.Set) (*environment, error) {
	e := &environment{hubServer: set.Hub, hub: set.Hub.Admin, scheme: set.Scheme, workers: map[v1alpha1.ClusterName]*worker{}}
	fleet, err := set.NewFleet(remote.Options{HubID: hubID, ProbeInterval: time.Second, Scheme: set.Scheme})
	if err != nil {
		return nil, err
	}
	e.fleet = fleet
	for i, name := range []v1alpha1.ClusterName{workerName, otherName} {
		server := set.Workers[i]
		e.workers[name] = &worker{name: name, Server: server, connection: server.Connect(fleet, name)}
		registration := &v1alpha1.WorkerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: string(name)},
			Spec:       v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: "/kubeconfig"}},
		}
		if err := e.hub.Create(ctx, registration); err != nil {
			return nil, err
		}
		registration.Status.ClusterID = server.ID
		if err := e.hub.Status().Update(ctx, registration); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// scene has the key of a job in its own namespace, and the garbage collectors that a test calls.
type scene struct {
	*environment
	key    client.ObjectKey
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
	// quarantine is shared by all collectors. brought has the keys that it has brought to them.
	quarantine *garbagecollection.Quarantine
	brought    *mailbox
	// options are the options of the collectors. A change by a test takes effect at the next restart.
	options    map[v1alpha1.ClusterName]*garbagecollection.Options
	collectors map[v1alpha1.ClusterName]reconcile.Reconciler
}

// demand returns the same demand for each job, in place of placement.
func demand(context.Context, *unstructured.Unstructured) ([]v1alpha1.PodSet, int32, error) {
	return []v1alpha1.PodSet{{Name: "node", Count: 2}}, 7, nil
}

// mailbox has the keys that the quarantine has brought to the collectors.
type mailbox struct {
	mu   sync.Mutex
	keys map[v1alpha1.ClusterName]map[types.NamespacedName]bool // under mu
}

func (m *mailbox) put(worker v1alpha1.ClusterName, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[v1alpha1.ClusterName]map[types.NamespacedName]bool{}
	}
	if m.keys[worker] == nil {
		m.keys[worker] = map[types.NamespacedName]bool{}
	}
	m.keys[worker][key] = true
}

func (m *mailbox) has(worker v1alpha1.ClusterName, key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[worker][key]
}

var namespaces atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	e := shared.Get(t)
	s := &scene{
		environment: e,
		key:         client.ObjectKey{Namespace: fmt.Sprintf("test-%d", namespaces.Add(1)), Name: jobName},
		clock:       clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), // The API has whole seconds.
		events:      events.NewFakeRecorder(1000),
		options:     map[v1alpha1.ClusterName]*garbagecollection.Options{},
	}
	must(t, e.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}))
	for name, w := range e.workers {
		eventually(t, "connection", func(g gomega.Gomega) {
			g.Expect(w.connection.Status().State).To(gomega.Equal(remote.Connected), w.connection.Status().Message)
		})
		must(t, w.Admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}))
		s.options[name] = &garbagecollection.Options{
			Cluster: name, ClusterID: w.ID, HubID: hubID, ManagedBy: v1alpha1.ManagedByMultiKueue,
			Hub: e.hub, HubReader: e.hub, Worker: w.connection, WorkerCache: w.connection.Cache(),
			Recorder: s.events, Clock: s.clock,
			Retention: func(context.Context, *unstructured.Unstructured) (time.Duration, error) { return retention, nil },
			Demand:    demand,
			Others: func(name v1alpha1.ClusterName, _ types.UID) (copies.Connection, bool) {
				w, ok := e.workers[name]
				if !ok {
					return nil, false
				}
				return w.connection, true
			},
		}
	}
	s.restart()
	t.Cleanup(func() { s.cleanUp(t) })
	return s
}

// restart starts a new process without memory.
func (s *scene) restart() {
	s.brought = &mailbox{}
	s.quarantine = garbagecollection.NewQuarantine(garbagecollection.QuarantineOptions{
		Hub: s.hub, Recorder: s.events, Clock: s.clock, Enqueue: s.brought.put,
	})
	s.collectors = map[v1alpha1.ClusterName]reconcile.Reconciler{}
	for name, options := range s.options {
		options.Quarantine = s.quarantine
		s.collectors[name] = garbagecollection.NewReconciler(*options)
	}
}

// cleanUp deletes Dispatch, copies and their traces in statuses. The next test's controllers see the whole hub.
func (s *scene) cleanUp(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	d := &v1alpha1.Dispatch{}
	d.Namespace, d.Name = s.key.Namespace, s.key.Name
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	must(t, client.IgnoreNotFound(s.hub.Patch(ctx, d, patch)))
	must(t, client.IgnoreNotFound(s.hub.Delete(ctx, d)))
	for name, w := range s.workers {
		if copy := read(t, w.Admin, s.key); copy != nil {
			must(t, client.IgnoreNotFound(w.Admin.Delete(ctx, copy)))
			s.finishDeletion(ctx, t, name)
		}
		registration := &v1alpha1.WorkerCluster{}
		must(t, s.hub.Get(ctx, client.ObjectKey{Name: string(name)}, registration))
		registration.Status.UnknownCopies, registration.Status.Conditions = nil, nil
		must(t, s.hub.Status().Update(ctx, registration))
	}
}

// finishDeletion does what a cluster's garbage collector does at the end of a deletion in the foreground.
func (s *scene) finishDeletion(ctx context.Context, t *testing.T, on v1alpha1.ClusterName) {
	t.Helper()
	copy := read(t, s.workers[on].Admin, s.key)
	if copy == nil {
		return
	}
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	must(t, client.IgnoreNotFound(s.workers[on].Admin.Patch(ctx, copy, client.RawPatch(types.MergePatchType, patch))))
}

func (s *scene) submit(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	job := s.newJob()
	must(t, unstructured.SetNestedField(job.Object, v1alpha1.ManagedByMultiKueue, "spec", "managedBy"))
	must(t, s.hub.Create(t.Context(), job))
	return job
}

// place creates a Dispatch of the TrainJob with this UID.
func (s *scene) place(t *testing.T, origin types.UID, cluster v1alpha1.ClusterName, attempt int32) *v1alpha1.Dispatch {
	t.Helper()
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: s.key.Name, UID: origin}, Cluster: cluster, Attempt: attempt,
		},
	}
	if w := s.workers[cluster]; w != nil {
		d.Spec.ClusterID = w.ID
	}
	must(t, s.hub.Create(t.Context(), d))
	return d
}

// finish sets the condition of a Dispatch that says that the job has finished now.
func (s *scene) finish(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	s.say(t, d, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete)
}

// say sets a condition of a Dispatch, about its current attempt.
func (s *scene) say(t *testing.T, d *v1alpha1.Dispatch, condition string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	d.Status.Attempt = d.Spec.Attempt
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(s.clock.Now()),
	})
	must(t, s.hub.Status().Update(t.Context(), d))
}

// addTombstone writes the Tombstone of a job.
func (s *scene) addTombstone(t *testing.T, origin types.UID, on v1alpha1.ClusterName, attempt int32) *v1alpha1.Tombstone {
	t.Helper()
	tombstone := &v1alpha1.Tombstone{
		ObjectMeta: metav1.ObjectMeta{Name: string(origin)},
		Spec: v1alpha1.TombstoneSpec{
			Cluster: "as-it-was-called", ClusterID: s.workers[on].ID, Namespace: s.key.Namespace, Attempt: attempt,
			TrainJob: v1alpha1.TrainJobReference{Name: s.key.Name, UID: origin},
		},
	}
	must(t, s.hub.Create(t.Context(), tombstone))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(s.hub.Delete(context.WithoutCancel(t.Context()), tombstone))) })
	return tombstone
}

// createCopy creates a copy of the TrainJob with this UID on the worker.
func (s *scene) createCopy(t *testing.T, origin types.UID, attempt string) *unstructured.Unstructured {
	t.Helper()
	return s.createCopyOn(t, workerName, origin, attempt)
}

func (s *scene) createCopyOn(t *testing.T, on v1alpha1.ClusterName, origin types.UID, attempt string) *unstructured.Unstructured {
	t.Helper()
	copy := s.newJob()
	copy.SetLabels(map[string]string{v1alpha1.LabelHub: hubID, v1alpha1.LabelOriginUID: string(origin), "team": "a"})
	copy.SetAnnotations(map[string]string{
		v1alpha1.AnnotationAttempt: attempt, v1alpha1.AnnotationFailover: string(v1alpha1.FailoverFenced), "note": "b",
	})
	must(t, s.workers[on].Admin.Create(t.Context(), copy))
	s.settle(t)
	return copy
}

// run creates a pod of the job on a worker, and returns how to end it.
func (s *scene) run(t *testing.T, on v1alpha1.ClusterName) (end func()) {
	t.Helper()
	admin := s.workers[on].Admin
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: "pod", Labels: map[string]string{"jobset.sigs.k8s.io/jobset-name": s.key.Name},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	must(t, admin.Create(t.Context(), pod))
	seen := func(want int) {
		eventually(t, "worker's cache of pods", func(g gomega.Gomega) {
			var pods corev1.PodList
			g.Expect(s.workers[on].connection.Cache().List(t.Context(), &pods, client.InNamespace(s.key.Namespace))).To(gomega.Succeed())
			g.Expect(pods.Items).To(gomega.HaveLen(want))
		})
	}
	seen(1)
	return func() {
		must(t, admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		seen(0)
	}
}

func (s *scene) newJob() *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace(s.key.Namespace)
	job.SetName(s.key.Name)
	job.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
	return job
}

// collect calls the collector, which must not fail, and waits until the worker's cache shows what it did.
func (s *scene) collect(t *testing.T) reconcile.Result {
	t.Helper()
	return s.collectOn(t, workerName, s.key)
}

func (s *scene) collectOn(t *testing.T, on v1alpha1.ClusterName, key client.ObjectKey) reconcile.Result {
	t.Helper()
	result, err := s.collectors[on].Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	must(t, err)
	s.settle(t)
	return result
}

func (s *scene) sweep(t *testing.T, on v1alpha1.ClusterName) {
	t.Helper()
	must(t, garbagecollection.Sweep(t.Context(), *s.options[on]))
	s.settle(t)
}

// report calls the quarantine's Reconcile for a worker, and returns the WorkerCluster after that.
func (s *scene) report(t *testing.T, of v1alpha1.ClusterName) *v1alpha1.WorkerCluster {
	t.Helper()
	key := client.ObjectKey{Name: string(of)}
	_, err := s.quarantine.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	must(t, err)
	registration := &v1alpha1.WorkerCluster{}
	must(t, s.hub.Get(t.Context(), key, registration))
	return registration
}

// decide writes an admin's decision about a copy.
func (s *scene) decide(t *testing.T, copy *unstructured.Unstructured, decision string) {
	t.Helper()
	registration := &v1alpha1.WorkerCluster{}
	must(t, s.hub.Get(t.Context(), client.ObjectKey{Name: string(workerName)}, registration))
	metav1.SetMetaDataAnnotation(&registration.ObjectMeta, v1alpha1.AnnotationDecisionPrefix+string(copy.GetUID()), decision)
	must(t, s.hub.Update(t.Context(), registration))
}

// told counts the Events with this text, and forgets all Events so far.
func (s *scene) told(t *testing.T, text string) int {
	t.Helper()
	count := 0
	for {
		select {
		case event := <-s.events.Events:
			if strings.Contains(event, text) {
				count++
			} else {
				t.Logf("another Event: %s", event)
			}
		default:
			return count
		}
	}
}

// settle waits until the workers' caches show the present copies.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	for _, w := range s.workers {
		check.Cached(t, w.connection.Cache(), w.Admin, s.key, hubID)
	}
}

// copy reads the copy from the worker. It returns nil if there is none.
func (s *scene) copy(t *testing.T) *unstructured.Unstructured { return s.copyOn(t, workerName) }

func (s *scene) copyOn(t *testing.T, on v1alpha1.ClusterName) *unstructured.Unstructured {
	t.Helper()
	return read(t, s.workers[on].Admin, s.key)
}

// dispatch reads the Dispatch from the hub. It returns nil if there is none.
func (s *scene) dispatch(t *testing.T) *v1alpha1.Dispatch {
	t.Helper()
	return check.Dispatch(t, s.hub, s.key)
}
