// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// patience is a timeout for quick things on a machine that may be busy.
const patience = 60 * time.Second

// environment is a hub with the caches of a manager, and two workers. Tests play Kueue on all of them.
type environment struct {
	set    *stage.Stage
	hub    client.Client
	cached client.Client
	fleet  *remote.Fleet
}

var shared = stage.ShareEnvironment(newEnvironment, "east", "west")

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *stage.Stage) (*environment, error) {
	for _, server := range append([]*stage.Server{set.Hub}, set.Workers...) {
		if err := server.Cluster.ApplyFiles(ctx, filepath.Join("testdata", "crds.yaml")); err != nil {
			return nil, err
		}
	}
	hub, err := cluster.New(set.Hub.Cluster.Config, func(o *cluster.Options) {
		o.Scheme, o.Client = set.Scheme, client.Options{Cache: &client.CacheOptions{Unstructured: true}}
		o.Cache = cache.Options{ByObject: map[client.Object]cache.ByObject{NewWorkload(): {Transform: Strip}}}
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Start(running) }()
	// No test here loses a worker. A machine that stands still for a few seconds must not either: the job would keep its worker.
	options := remote.Options{HubID: "hub-1", ProbeInterval: time.Second, ProbeTimeout: patience, Workloads: true}
	fleet, err := remote.NewFleet(running, options)
	if err != nil {
		cancel()
		return nil, err
	}
	set.Cleanup(func() error {
		cancel()
		fleet.Wait()
		return <-ended
	})
	for _, worker := range set.Workers {
		name := worker.Cluster.Name
		fleet.Ensure(v1alpha1.ClusterName(name), remote.Credentials{Config: worker.Cluster.Config, Fingerprint: "admin"}, worker.ID)
		registered := &v1alpha1.WorkerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: "/nowhere"}},
		}
		if err := set.Hub.Admin.Create(ctx, registered); err != nil {
			return nil, err
		}
	}
	return &environment{set: set, hub: set.Hub.Admin, cached: hub.GetClient(), fleet: fleet}, nil
}

// rooms is a Room that answers as a test wants. Without an answer no worker has room.
type rooms struct {
	// on has the workers with room, in order of preference, and jobs how many jobs fit on all of them together.
	on   []v1alpha1.ClusterName
	jobs int
	// asked are the questions so far. before is called before each answer.
	asked  []queue.Job
	before func()
	kept   map[types.UID]v1alpha1.ClusterName
}

func (r *rooms) Nominate(_ context.Context, job queue.Job, except v1alpha1.ClusterName) (v1alpha1.ClusterExplanation, error) {
	r.asked = append(r.asked, job)
	if r.before != nil {
		r.before()
	}
	for _, worker := range r.on {
		if _, excluded := job.Excluded[worker]; !excluded && worker != except && (r.jobs > 0 || r.kept[job.UID] == worker) {
			if r.kept[job.UID] != worker {
				r.jobs--
			}
			r.kept[job.UID] = worker
			return v1alpha1.ClusterExplanation{Cluster: worker, Reason: v1alpha1.ReasonFits, Message: "there is room"}, nil
		}
	}
	delete(r.kept, job.UID)
	return v1alpha1.ClusterExplanation{Cluster: "west", Reason: v1alpha1.ReasonInsufficientResources, Message: "no GPUs"}, nil
}

func (r *rooms) Occupy(job queue.Job, worker v1alpha1.ClusterName) { r.kept[job.UID] = worker }

func (r *rooms) Release(uid types.UID) { delete(r.kept, uid) }

func (r *rooms) Subscribe(func()) (cancel func()) { return func() {} }

// scene has a namespace, MultiKueue's objects, and the reconciler that the test calls.
type scene struct {
	*environment
	namespace  string
	clock      *clocktesting.FakeClock
	room       *rooms
	recorder   *events.FakeRecorder
	reconciler *Reconciler
}

var scenes atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		environment: shared.Get(t), namespace: fmt.Sprintf("test-%d", scenes.Add(1)), clock: clocktesting.NewFakeClock(time.Now()),
		room: &rooms{on: []v1alpha1.ClusterName{"east", "west"}, jobs: 100, kept: map[types.UID]v1alpha1.ClusterName{}},
	}
	check.Must(t, s.hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
	for _, worker := range s.set.Workers {
		check.Must(t, worker.Admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
	}
	s.object(t, "AdmissionCheck", s.namespace, map[string]any{"spec": map[string]any{
		"controllerName": v1alpha1.ManagedByMultiKueue, "parameters": map[string]any{"name": s.namespace},
	}})
	s.object(t, "MultiKueueConfig", s.namespace, map[string]any{"spec": map[string]any{"clusters": []any{"east", "west"}}})
	for _, name := range []string{"east", "west"} {
		s.object(t, "MultiKueueCluster", name, map[string]any{"status": map[string]any{
			"conditions": []any{map[string]any{"type": "Active", "status": "True"}},
		}})
	}
	s.restart()
	return s
}

// restart starts a new process.
func (s *scene) restart() {
	s.recorder = events.NewFakeRecorder(100)
	s.reconciler = NewReconciler(Options{
		Hub: s.cached, Connections: s.fleet, Room: s.room, PodSet: demand.OfPods, Policy: placement.Policies{Hub: s.cached}.For,
		Recorder: s.recorder, Clock: s.clock,
	})
}

// object creates an object of Kueue on the hub until the test ends, and waits for the cache.
func (s *scene) object(t *testing.T, kind, name string, fields map[string]any) {
	t.Helper()
	o := newObject(kind)
	o.SetName(name)
	for key, value := range fields {
		o.Object[key] = value
	}
	check.Must(t, s.hub.Create(t.Context(), o.DeepCopy()))
	t.Cleanup(func() { check.Must(t, s.hub.Delete(context.Background(), o)) })
	if status := fields["status"]; status != nil {
		check.Must(t, s.patch(s.hub, o, "status", map[string]any{"status": status}))
	}
	s.eventually(t, kind+" "+name+" is in the cache", func() bool {
		seen := newObject(kind)
		return s.cached.Get(t.Context(), types.NamespacedName{Name: name}, seen) == nil && (fields["status"] == nil || seen.Object["status"] != nil)
	})
}

// patch applies fields to an object, or to a subresource, as Kueue does.
func (s *scene) patch(c client.Client, o *unstructured.Unstructured, subresource string, fields map[string]any) error {
	applied := &unstructured.Unstructured{Object: fields}
	applied.SetGroupVersionKind(o.GroupVersionKind())
	applied.SetNamespace(o.GetNamespace())
	applied.SetName(o.GetName())
	return c.SubResource(subresource).Patch(context.Background(), applied, client.Apply, client.FieldOwner(managerOfKueue), client.ForceOwnership) //nolint:staticcheck // The fields have no type.
}

// waiting is the status of a Workload that waits for MultiKueue only.
func (s *scene) waiting() map[string]any {
	return map[string]any{
		"admission":       map[string]any{"clusterQueue": "gpus"},
		"conditions":      []any{map[string]any{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "m"}},
		"admissionChecks": []any{map[string]any{"name": s.namespace, "state": "Pending"}},
	}
}

// submit creates a Workload of a JobSet that waits for MultiKueue only.
func (s *scene) submit(t *testing.T, name string, priority int64) {
	t.Helper()
	w := s.named(name)
	w.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "of-" + name, UID: "1", Controller: new(true)},
	})
	w.Object["spec"] = map[string]any{"priority": priority, "podSets": []any{map[string]any{
		"name": "node", "count": int64(2), "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "c", "image": "i", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "8"}},
		}}}},
	}}}
	check.Must(t, s.hub.Create(t.Context(), w))
	s.status(t, name, s.waiting())
}

func (s *scene) named(name string) *unstructured.Unstructured {
	w := NewWorkload()
	w.SetNamespace(s.namespace)
	w.SetName(name)
	return w
}

// status applies a status of a hub Workload as Kueue does, and waits for the cache.
func (s *scene) status(t *testing.T, name string, status map[string]any) {
	t.Helper()
	check.Must(t, s.patch(s.hub, s.named(name), "status", map[string]any{"status": status}))
	s.settle(t, name)
}

// settle waits until the hub's cache has the present version of a Workload.
func (s *scene) settle(t *testing.T, name string) {
	t.Helper()
	live := s.live(t, name)
	s.eventually(t, "the cache has Workload "+name, func() bool {
		seen := NewWorkload()
		return s.cached.Get(t.Context(), client.ObjectKeyFromObject(live), seen) == nil && seen.GetResourceVersion() == live.GetResourceVersion()
	})
}

func (s *scene) live(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	w := s.named(name)
	check.Must(t, s.hub.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	return w
}

// clone creates or changes the clone of a Workload on a worker, with these conditions, and waits for the hub's cache
// of it. Without a condition it deletes the clone.
func (s *scene) clone(t *testing.T, worker, name string, conditions ...any) {
	t.Helper()
	for i := range s.set.Workers {
		if s.set.Workers[i].Cluster.Name != worker {
			continue
		}
		admin, w := s.set.Workers[i].Admin, s.named(name)
		if len(conditions) == 0 {
			check.Must(t, client.IgnoreNotFound(admin.Delete(t.Context(), w)))
		} else {
			w.SetLabels(map[string]string{"kueue.x-k8s.io/multikueue-origin": "multikueue"})
			if err := admin.Create(t.Context(), w.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
			check.Must(t, s.patch(admin, w, "status", map[string]any{"status": map[string]any{"conditions": conditions}}))
		}
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(w), w)
		check.Must(t, client.IgnoreNotFound(err))
		s.eventually(t, "the cache of "+worker+" has the clone of "+name, func() bool {
			connection, ok := s.fleet.Get(v1alpha1.ClusterName(worker))
			if !ok || connection.Status().State != remote.Connected {
				return false
			}
			seen := NewWorkload()
			got := connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(w), seen)
			if err != nil {
				return apierrors.IsNotFound(got)
			}
			return got == nil && seen.GetResourceVersion() == w.GetResourceVersion()
		})
	}
}

func is(kind, reason, message string) map[string]any {
	value := "True"
	if kind == conditionQuotaReserved && reason != conditionQuotaReserved {
		value = "False"
	}
	return map[string]any{"type": kind, "status": value, "reason": reason, "message": message}
}

// turn reconciles Workloads, and then the waiting list.
func (s *scene) turn(t *testing.T, names ...string) (last reconcile.Result) {
	t.Helper()
	for _, name := range names {
		var err error
		last, err = s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.namespace, Name: name}})
		check.Must(t, err)
	}
	if _, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: waitingList}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		s.settle(t, name)
	}
	return last
}

func (s *scene) nominated(t *testing.T, name string) []string {
	t.Helper()
	names, _, err := unstructured.NestedStringSlice(s.live(t, name).Object, "status", "nominatedClusterNames")
	check.Must(t, err)
	return names
}

// told returns the Events since the last call.
func (s *scene) told() (all []string) {
	for {
		select {
		case event := <-s.recorder.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

func (s *scene) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	gomega.NewWithT(t).Eventually(is, patience, 20*time.Millisecond).Should(gomega.BeTrue(), what)
}
