// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/laws"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	hubID      = "hub-1"
	workerName = v1alpha1.ClusterName("worker")
	jobName    = "job"
	patience   = check.Patience
)

// environment is a hub and a worker without controllers: what they would do, the tests do by hand.
type environment struct {
	hubServer, workerServer *clusters.Cluster
	// hub and worker are the admin's, without caches.
	hub, worker client.Client
	hubWatch    client.WithWatch
	fleet       *remote.Fleet
	connection  *remote.Cluster
	// secretive is true if the worker forbids the connection to read JobSets.
	secretive bool
	scheme    *runtime.Scheme
}

var must, eventually, read = check.Must, check.Eventually, check.TrainJob

var shared = stage.ShareEnvironment(newEnvironment, string(workerName))

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *stage.Stage) (*environment, error) {
	worker := set.Workers[0]
	e := &environment{
		hubServer: set.Hub.Cluster, workerServer: worker.Cluster, hub: set.Hub.Admin, hubWatch: set.Hub.Admin,
		worker: worker.Admin, scheme: set.Scheme,
	}
	for _, server := range []*stage.Server{set.Hub, worker} {
		if err := server.InstallRuntime(ctx); err != nil {
			return nil, err
		}
	}
	err := set.Connect(remote.Options{Scheme: set.Scheme})
	e.fleet, e.connection = set.Fleet, worker.Connection
	return e, err
}

// scene is a job in a namespace of its own that is placed on the worker, and the mirror that a test calls.
type scene struct {
	*environment
	key   client.ObjectKey
	clock *clocktesting.FakeClock
	// challenge that was answered last. Empty: the worker's agent does not answer.
	challenge string
	// options of the mirror. What a test changes holds from the next restart on.
	options mirror.Options
	mirror  reconcile.Reconciler
}

var namespaces atomic.Int32

// setting is what is special about a scene.
type setting struct {
	// spec is added to the spec of the job.
	spec map[string]any
	// labels and annotations of the job.
	labels, annotations map[string]string
	// failover of the Dispatch.
	failover v1alpha1.Failover
	// hubOnly: the worker does not have the job's namespace.
	hubOnly bool
}

// newScene creates a job on the hub and its Dispatch. The worker has the runtime.
func newScene(t *testing.T, with setting) *scene {
	t.Helper()
	e := shared.Get(t)
	eventually(t, "connection", func(g gomega.Gomega) {
		g.Expect(e.connection.Status().State).To(gomega.Equal(remote.Connected), e.connection.Status().Message)
	})
	s := &scene{
		environment: e,
		key:         client.ObjectKey{Namespace: fmt.Sprintf("test-%d", namespaces.Add(1)), Name: jobName},
		clock:       clocktesting.NewFakeClock(time.Now()),
	}
	for _, c := range []client.Client{e.hub, e.worker} {
		if c == e.hub || !with.hubOnly {
			must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}))
		}
	}
	job := trainjobs.New()
	job.SetNamespace(s.key.Namespace)
	job.SetName(s.key.Name)
	job.Object["spec"] = map[string]any{
		"managedBy": v1alpha1.ManagedByMultiKueue, "runtimeRef": map[string]any{"name": "torch-distributed"},
	}
	job.SetLabels(with.labels)
	job.SetAnnotations(with.annotations)
	maps.Copy(job.Object["spec"].(map[string]any), with.spec)
	must(t, e.hub.Create(t.Context(), job))
	must(t, e.hub.Create(t.Context(), &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name, Finalizers: []string{v1alpha1.FinalizerCopy}},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: s.key.Name, UID: job.GetUID()}, Cluster: workerName, Attempt: 1,
			Failover: with.failover,
		},
	}))
	s.options = mirror.Options{
		Cluster: workerName, HubID: hubID, Hub: e.hub, HubReader: e.hub, Worker: e.connection,
		Policy:   func(context.Context, *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) { return nil, nil },
		Recorder: &events.FakeRecorder{}, Clock: s.clock,
		Lease: func() (string, bool) { return s.challenge, s.challenge != "" },
	}
	s.restart()
	return s
}

// restart is a new process, which remembers nothing.
func (s *scene) restart() { s.mirror = mirror.NewReconciler(s.options) }

// reconcile calls the mirror, which must not fail, and waits until the worker's cache shows what it did there.
func (s *scene) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before := s.dispatch(t)
	result, err := s.mirror.Reconcile(ctx, reconcile.Request{NamespacedName: s.key})
	must(t, err)
	if err := laws.Check(before, s.dispatch(t)); err != nil {
		t.Errorf("a write that no table has: %v", err)
	}
	s.settle(t)
	return result
}

// settle waits until the worker's cache shows the copy as it is now. A copy without our label is never in the cache.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	check.Cached(t, s.connection.Cache(), s.worker, s.key, hubID)
	s.settleJobSet(t)
}

// settleJobSet waits until the worker's cache shows the copy's JobSet as it is now, unless the worker does not let it
// be read.
func (s *scene) settleJobSet(t *testing.T) {
	t.Helper()
	eventually(t, "worker's cache of JobSets", func(g gomega.Gomega) {
		cached, live := newJobSet(), newJobSet()
		err := s.connection.Cache().Get(t.Context(), s.key, cached)
		if client.IgnoreNotFound(err) != nil && s.secretive {
			return
		}
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(client.IgnoreNotFound(s.worker.Get(t.Context(), s.key, live))).To(gomega.Succeed())
		g.Expect(cached.GetResourceVersion()).To(gomega.Equal(live.GetResourceVersion()))
	})
}

// newJobSet returns an empty JobSet, for a client to read into.
func newJobSet() *unstructured.Unstructured {
	jobSet := &unstructured.Unstructured{}
	jobSet.SetGroupVersionKind(jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet"))
	return jobSet
}

// job, dispatch and copy are what is on the API servers now, nil if nothing is.
func (s *scene) job(t *testing.T) *unstructured.Unstructured  { return read(t, s.hub, s.key) }
func (s *scene) copy(t *testing.T) *unstructured.Unstructured { return read(t, s.worker, s.key) }

func (s *scene) dispatch(t *testing.T) *v1alpha1.Dispatch {
	t.Helper()
	return check.Dispatch(t, s.hub, s.key)
}

// say writes a TrainJob's status as its controller would: running, or ended by the condition. running is the number of
// jobs.
func say(t *testing.T, c client.Client, job *unstructured.Unstructured, end string, running int64) {
	t.Helper()
	status := map[string]any{"jobsStatus": []any{map[string]any{
		"name": "node", "active": running, "ready": int64(0), "succeeded": int64(0), "failed": int64(0), "suspended": int64(0),
	}}}
	if end != "" {
		status["conditions"] = []any{map[string]any{
			"type": end, "status": "True", "reason": "Because", "message": "it is " + end, "lastTransitionTime": "2026-01-02T03:04:05Z",
		}}
	}
	job.Object["status"] = status
	must(t, c.Status().Update(t.Context(), job))
}

// stuck returns a client that always reads what is on the API server now, like a cache that lags. Its writes take
// effect at once. more are kinds that it can read beside the kinds that every job needs.
func (e *environment) stuck(t *testing.T, server *clusters.Cluster, more ...client.Object) client.Client {
	t.Helper()
	kinds := append([]client.Object{
		trainjobs.New(), newJobSet(), &corev1.Pod{},
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}},
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
			APIVersion: trainer.SchemeGroupVersion.String(), Kind: trainer.ClusterTrainingRuntimeKind,
		}},
	}, more...)
	if server == e.hubServer {
		kinds = append(kinds, &v1alpha1.Dispatch{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	reader, err := cache.New(server.Config, cache.Options{Scheme: e.scheme})
	must(t, err)
	for _, kind := range kinds {
		_, err := reader.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		must(t, err)
	}
	ended := make(chan error)
	go func() { ended <- reader.Start(ctx) }()
	if !reader.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not fill")
	}
	cancel()
	must(t, <-ended)
	c, err := client.New(server.Config, client.Options{Scheme: e.scheme, Cache: &client.CacheOptions{Reader: reader, Unstructured: true}})
	must(t, err)
	return c
}

// stuckWorker is a connection whose cache lags.
type stuckWorker struct {
	cached client.Client
	live   client.Reader
}

func (w stuckWorker) Client() (client.Client, error)    { return w.cached, nil }
func (w stuckWorker) APIReader() (client.Reader, error) { return w.live, nil }
