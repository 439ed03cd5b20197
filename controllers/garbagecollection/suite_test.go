// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"fmt"
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
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/garbagecollection"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/servers"
)

const (
	hubID      = "hub-1"
	workerName = v1alpha1.ClusterName("worker")
	jobName    = "job"
	retention  = 10 * time.Minute
	// patience is for things that are quick, on a machine that may be busy.
	patience = 60 * time.Second
)

// environment is a hub and a worker without controllers: what they would do, the tests do by hand.
type environment struct {
	hubServer, workerServer *clusters.Cluster
	// hub and worker are the admin's, without caches.
	hub, worker client.Client
	fleet       *remote.Fleet
	connection  *remote.Cluster
	scheme      *runtime.Scheme
}

var shared = servers.Share(newEnvironment, string(workerName))

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *servers.Set) (*environment, error) {
	worker := set.Workers[0]
	e := &environment{
		hubServer: set.Hub.Cluster, workerServer: worker.Cluster, hub: set.Hub.Admin, worker: worker.Admin, scheme: set.Scheme,
	}
	fleetCtx, end := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(fleetCtx, remote.Options{HubID: hubID, ProbeInterval: time.Second, Scheme: set.Scheme})
	if err != nil {
		end()
		return nil, err
	}
	set.Cleanup(func() error {
		end()
		fleet.Wait()
		return nil
	})
	fleet.Ensure(workerName, remote.Credentials{Config: worker.Cluster.Config, Fingerprint: "admin"}, worker.ID)
	e.fleet = fleet
	e.connection, _ = fleet.Get(workerName)
	return e, nil
}

// scene is the key of a job in a namespace of its own, and the garbage collector that a test calls.
type scene struct {
	*environment
	key   client.ObjectKey
	clock *clocktesting.FakeClock
	// options of the collector. What a test changes holds from the next restart on.
	options   garbagecollection.Options
	collector reconcile.Reconciler
}

var namespaces atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	e := shared.Get(t)
	eventually(t, "connection", func(g gomega.Gomega) {
		g.Expect(e.connection.Status().State).To(gomega.Equal(remote.Connected), e.connection.Status().Message)
	})
	s := &scene{
		environment: e,
		key:         client.ObjectKey{Namespace: fmt.Sprintf("test-%d", namespaces.Add(1)), Name: jobName},
		clock:       clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), // The API has whole seconds.
	}
	for _, c := range []client.Client{e.hub, e.worker} {
		must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.key.Namespace}}))
	}
	s.options = garbagecollection.Options{
		Cluster: workerName, Hub: e.hub, Worker: e.connection, Clock: s.clock,
		Retention: func(context.Context, *unstructured.Unstructured) (time.Duration, error) { return retention, nil },
	}
	s.restart()
	return s
}

// restart is a new process, which remembers nothing.
func (s *scene) restart() { s.collector = garbagecollection.NewReconciler(s.options) }

// submit creates the hub's TrainJob.
func (s *scene) submit(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	job := s.newJob()
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
	must(t, s.hub.Create(t.Context(), d))
	return d
}

// finish says on a Dispatch that the job has ended now.
func (s *scene) finish(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete,
		LastTransitionTime: metav1.NewTime(s.clock.Now()),
	})
	must(t, s.hub.Status().Update(t.Context(), d))
}

// createCopy creates a copy of the TrainJob with this UID on the worker.
func (s *scene) createCopy(t *testing.T, origin types.UID, attempt string) *unstructured.Unstructured {
	t.Helper()
	copy := s.newJob()
	copy.SetLabels(map[string]string{v1alpha1.LabelHub: hubID, v1alpha1.LabelOriginUID: string(origin)})
	copy.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: attempt})
	must(t, s.worker.Create(t.Context(), copy))
	s.settle(t)
	return copy
}

func (s *scene) newJob() *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace(s.key.Namespace)
	job.SetName(s.key.Name)
	job.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
	return job
}

// collect calls the collector, which must not fail, and waits until the worker's cache shows what it did there.
func (s *scene) collect(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := s.collector.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
	must(t, err)
	s.settle(t)
	return result
}

// settle waits until the worker's cache shows the copy as it is now.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	version := func(object *unstructured.Unstructured) string {
		if object == nil {
			return "none"
		}
		return object.GetResourceVersion()
	}
	eventually(t, "worker's cache", func(g gomega.Gomega) {
		g.Expect(version(read(t, s.connection.Cache(), s.key))).To(gomega.Equal(version(s.copy(t))))
	})
}

// copy is what is on the worker now, nil if there is none.
func (s *scene) copy(t *testing.T) *unstructured.Unstructured { return read(t, s.worker, s.key) }

// read returns a TrainJob, nil if there is none.
func read(t *testing.T, reader client.Reader, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	job := trainjobs.New()
	if err := reader.Get(t.Context(), key, job); err != nil {
		must(t, client.IgnoreNotFound(err))
		return nil
	}
	return job
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, check func(gomega.Gomega)) {
	t.Helper()
	gomega.NewWithT(t).Eventually(check, patience, 10*time.Millisecond).Should(gomega.Succeed(), what)
}
