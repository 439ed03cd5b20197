// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/servers"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")
	// longEnough is a timeout for quick things on a machine that may be busy.
	longEnough = 60 * time.Second
)

// environment is a hub with the caches of a manager, and two workers without controllers.
type environment struct {
	hub    *servers.Server
	set    *servers.Set
	cached client.Client
}

var shared = servers.Share(newEnvironment, "east", "west")

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *servers.Set) (*environment, error) {
	if err := set.Hub.InstallRuntime(ctx); err != nil {
		return nil, err
	}
	hub, err := cluster.New(set.Hub.Cluster.Config, func(o *cluster.Options) {
		o.Scheme, o.Client = set.Scheme, client.Options{Cache: &client.CacheOptions{Unstructured: true}}
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
	for _, worker := range set.Workers {
		if err := addNodes(ctx, worker); err != nil {
			return nil, err
		}
	}
	return &environment{hub: set.Hub, set: set, cached: hub.GetClient()}, nil
}

// addNodes creates two nodes of eight GPUs.
func addNodes(ctx context.Context, server *servers.Server) error {
	for i := range 2 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		if err := server.Admin.Create(ctx, node); err != nil {
			return err
		}
		node.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("1Ti"),
			corev1.ResourcePods: resource.MustParse("110"), gpu: resource.MustParse("8"),
		}
		node.Status.Capacity = node.Status.Allocatable
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := server.Admin.Status().Update(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// scene has a namespace, workers and a policy for one test, and the reconciler that the test calls.
type scene struct {
	*environment
	namespace  string
	clock      *clocktesting.FakeClock
	room       *rooms
	reconciler *Reconciler
}

var scenes atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		environment: shared.Get(t), namespace: fmt.Sprintf("test-%d", scenes.Add(1)), room: &rooms{},
		clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), // The API has times in whole seconds.
	}
	s.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	t.Cleanup(func() { s.tidy(t) })
	s.restart()
	return s
}

// restart starts a new process.
func (s *scene) restart() {
	s.reconciler = NewReconciler(Options{
		Hub: s.cached, Room: s.room, Policy: placement.Policies{Hub: s.cached}.For, Clock: s.clock,
	})
}

// tidy deletes all jobs and Dispatches.
func (s *scene) tidy(t *testing.T) {
	ctx := context.Background()
	check.Must(t, s.hub.Admin.DeleteAllOf(ctx, trainjobs.New(), client.InNamespace(s.namespace)))
	check.Must(t, s.hub.Admin.DeleteAllOf(ctx, &v1alpha1.Dispatch{}, client.InNamespace(s.namespace)))
	var dispatches v1alpha1.DispatchList
	check.Must(t, s.hub.Admin.List(ctx, &dispatches, client.InNamespace(s.namespace)))
	for i := range dispatches.Items {
		d := &dispatches.Items[i]
		check.Must(t, client.IgnoreNotFound(s.hub.Admin.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
	}
}

func (s *scene) create(t *testing.T, object client.Object) {
	t.Helper()
	check.Must(t, s.hub.Admin.Create(t.Context(), object))
}

// worker registers a Ready worker until the test ends.
func (s *scene) worker(t *testing.T, name string, change ...func(*v1alpha1.WorkerCluster)) v1alpha1.ClusterName {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec:       v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: "/nowhere"}},
	}
	s.create(t, worker)
	t.Cleanup(func() { check.Must(t, s.hub.Admin.Delete(context.Background(), worker)) })
	s.change(t, v1alpha1.ClusterName(name), ready(metav1.ConditionTrue, v1alpha1.ReasonConnected))
	for _, c := range change {
		s.change(t, v1alpha1.ClusterName(name), c)
	}
	return v1alpha1.ClusterName(name)
}

// change changes spec and status of a worker.
func (s *scene) change(t *testing.T, name v1alpha1.ClusterName, change func(*v1alpha1.WorkerCluster)) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, s.hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(name)}, worker))
	before := worker.DeepCopy()
	change(worker)
	status := worker.Status
	check.Must(t, s.hub.Admin.Patch(t.Context(), worker, client.MergeFrom(before)))
	worker.Status = status
	check.Must(t, s.hub.Admin.Status().Update(t.Context(), worker))
}

func ready(value metav1.ConditionStatus, reason string) func(*v1alpha1.WorkerCluster) {
	return func(worker *v1alpha1.WorkerCluster) {
		meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{Type: v1alpha1.WorkerClusterReady, Status: value, Reason: reason})
	}
}

func drain(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = true }

func undrain(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = false }

// policy creates the DispatchPolicy of the scene's jobs, until the test ends.
func (s *scene) policy(t *testing.T, spec v1alpha1.DispatchPolicySpec) {
	t.Helper()
	spec.Jobs.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}}
	policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: spec}
	s.create(t, policy)
	t.Cleanup(func() { check.Must(t, s.hub.Admin.Delete(context.Background(), policy)) })
}

// submit creates a TrainJob of two pods with four GPUs each, which is half of a worker.
func (s *scene) submit(t *testing.T, name string, change ...func(*trainer.TrainJob)) {
	t.Helper()
	requests := corev1.ResourceList{gpu: resource.MustParse("4")}
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: trainer.TrainJobSpec{
			ManagedBy: new(v1alpha1.ManagedByMultiKueue), RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"},
			Trainer: &trainer.Trainer{NumNodes: new(int32(2)), ResourcesPerNode: &corev1.ResourceRequirements{Requests: requests, Limits: requests}},
		},
	}
	for _, c := range change {
		c(job)
	}
	s.create(t, job)
}

// place submits a job, and creates the Dispatch that placement and mirror would write, with a copy on the worker.
func (s *scene) place(t *testing.T, name string, worker v1alpha1.ClusterName, change ...func(*trainer.TrainJob)) {
	t.Helper()
	s.submit(t, name, change...)
	job := trainjobs.New()
	check.Must(t, s.hub.Admin.Get(t.Context(), s.key(name), job))
	s.create(t, &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: name, UID: job.GetUID()}, Cluster: worker, Attempt: 1,
			PodSets: []v1alpha1.PodSet{{Name: "node", Count: int32(scenes.Load())}},
		},
	})
	s.copied(t, name)
}

func (s *scene) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

func (s *scene) dispatch(t *testing.T, name string) *v1alpha1.Dispatch {
	t.Helper()
	d := &v1alpha1.Dispatch{}
	check.Must(t, s.hub.Admin.Get(t.Context(), s.key(name), d))
	return d
}

// copied writes what mirror writes when the copy exists.
func (s *scene) copied(t *testing.T, name string) {
	t.Helper()
	d := s.dispatch(t, name)
	d.Status.Cluster, d.Status.Attempt, d.Status.Phase = d.Spec.Cluster, d.Spec.Attempt, v1alpha1.PhaseRunning
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCopied, LastTransitionTime: metav1.NewTime(s.clock.Now()),
	})
	check.Must(t, s.hub.Admin.Status().Update(t.Context(), d))
}

// stopped writes what mirror writes when it has carried out an eviction.
func (s *scene) stopped(t *testing.T, name string) {
	t.Helper()
	d := s.dispatch(t, name)
	if d.Spec.Eviction == nil {
		t.Fatalf("%s is not being evicted", name)
	}
	ender := records.Writer{Hub: s.hub.Admin, Clock: s.clock}
	check.Must(t, ender.End(t.Context(), d, v1alpha1.Outcome(d.Spec.Eviction.Reason), "by hand"))
}

// says writes the hub TrainJob's status in place of mirror.
func (s *scene) says(t *testing.T, name string, status trainer.TrainJobStatus) {
	t.Helper()
	job := &trainer.TrainJob{}
	check.Must(t, s.hub.Admin.Get(t.Context(), s.key(name), job))
	job.Status = status
	check.Must(t, s.hub.Admin.Status().Update(t.Context(), job))
}

// reconcile reconciles a worker without an error, when the cache is up to date.
func (s *scene) reconcile(t *testing.T, worker v1alpha1.ClusterName) reconcile.Result {
	t.Helper()
	s.sync(t)
	result, err := s.reconciler.Reconcile(t.Context(), request(worker))
	check.Must(t, err)
	return result
}

func request(worker v1alpha1.ClusterName) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: string(worker)}}
}

// sync waits until the cache shows what the API server has.
func (s *scene) sync(t *testing.T) {
	t.Helper()
	versions := func(from client.Reader) map[types.UID]string {
		all := map[types.UID]string{}
		for _, list := range []client.ObjectList{
			&v1alpha1.DispatchList{}, &v1alpha1.WorkerClusterList{}, &v1alpha1.DispatchPolicyList{}, trainjobs.NewList(),
		} {
			check.Must(t, from.List(t.Context(), list))
			check.Must(t, meta.EachListItem(list, func(object runtime.Object) error {
				all[object.(client.Object).GetUID()] = object.(client.Object).GetResourceVersion()
				return nil
			}))
		}
		return all
	}
	gomega.NewWithT(t).Eventually(func() bool {
		return maps.Equal(versions(s.hub.Admin), versions(s.cached))
	}, longEnough, 5*time.Millisecond).Should(gomega.BeTrue(), "the cache shows everything")
}

// evicted returns the jobs that are being evicted, and why, sorted.
func (s *scene) evicted(t *testing.T) []string {
	t.Helper()
	var dispatches v1alpha1.DispatchList
	check.Must(t, s.hub.Admin.List(t.Context(), &dispatches, client.InNamespace(s.namespace)))
	evicted := []string{}
	for i := range dispatches.Items {
		if d := &dispatches.Items[i]; d.Spec.Eviction != nil {
			evicted = append(evicted, fmt.Sprintf("%s %s", d.Name, d.Spec.Eviction.Reason))
		}
	}
	slices.Sort(evicted)
	return evicted
}

func (s *scene) wantEvicted(t *testing.T, reason string, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, s.evicted(t)); diff != "" {
		t.Errorf("evicted: %s (-want +got):\n%s", reason, diff)
	}
}
