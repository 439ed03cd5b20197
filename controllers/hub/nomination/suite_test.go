// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

var shared = stage.Share(prepare, "east", "west")

func TestMain(m *testing.M) { shared.Main(m) }

func prepare(ctx context.Context, s *stage.Stage) error {
	for _, server := range append([]*stage.Server{s.Hub}, s.Workers...) {
		if err := server.Cluster.ApplyFiles(ctx, filepath.Join("testdata", "crds.yaml")); err != nil {
			return err
		}
	}
	stripped := func(o *cluster.Options) {
		o.Cache.ByObject = map[client.Object]cache.ByObject{kueues.KindWorkload.New(): {Transform: Strip}}
	}
	// No test here loses a worker. A machine that stands still for a few seconds must not either: the job would keep its
	// worker.
	options := remote.Options{ProbeTimeout: check.Patience, Workloads: true}
	return errors.Join(s.StartCaches(ctx, stripped), s.Connect(options), s.Register(ctx))
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

// scene has the objects of Kueue for one test, and the reconciler that the test calls.
type scene struct {
	*stage.Scene
	room       *rooms
	reconciler *Reconciler
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		Scene: shared.Get(t).Scene(t),
		room:  &rooms{on: []v1alpha1.ClusterName{"east", "west"}, jobs: 100, kept: map[types.UID]v1alpha1.ClusterName{}},
	}
	s.object(t, "AdmissionCheck", s.Namespace, map[string]any{"spec": map[string]any{
		"controllerName": v1alpha1.ManagedByMultiKueue, "parameters": map[string]any{"name": s.Namespace},
	}})
	s.object(t, "MultiKueueConfig", s.Namespace, map[string]any{"spec": map[string]any{"clusters": []any{"east", "west"}}})
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
	s.reconciler = NewReconciler(Options{
		Hub: s.Cached, Connections: s.Fleet, Room: s.room, PodSet: demand.OfPods, Policy: placement.Policies{Hub: s.Cached}.For,
		Recorder: s.Events, Clock: s.Clock,
	})
}

// object creates an object of Kueue on the hub until the test ends, and waits for the cache.
func (s *scene) object(t *testing.T, kind, name string, fields map[string]any) {
	t.Helper()
	o := kueues.Kind(kind).New()
	o.SetName(name)
	for key, value := range fields {
		o.Object[key] = value
	}
	s.Hub.Create(t, o.DeepCopy())
	if status := fields["status"]; status != nil {
		check.Must(t, s.patch(s.Hub.Admin, o, "status", map[string]any{"status": status}))
	}
	s.eventually(t, kind+" "+name+" is in the cache", func() bool {
		seen := kueues.Kind(kind).New()
		return s.Cached.Get(t.Context(), types.NamespacedName{Name: name}, seen) == nil && (fields["status"] == nil || seen.Object["status"] != nil)
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
		"admissionChecks": []any{map[string]any{"name": s.Namespace, "state": "Pending"}},
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
	check.Must(t, s.Hub.Admin.Create(t.Context(), w))
	s.status(t, name, s.waiting())
}

func (s *scene) named(name string) *unstructured.Unstructured {
	w := kueues.KindWorkload.New()
	w.SetNamespace(s.Namespace)
	w.SetName(name)
	return w
}

// status applies a status of a hub Workload as Kueue does, and waits for the cache.
func (s *scene) status(t *testing.T, name string, status map[string]any) {
	t.Helper()
	check.Must(t, s.patch(s.Hub.Admin, s.named(name), "status", map[string]any{"status": status}))
	s.settle(t, name)
}

// settle waits until the hub's cache has the present version of a Workload.
func (s *scene) settle(t *testing.T, name string) {
	t.Helper()
	live := s.live(t, name)
	s.eventually(t, "the cache has Workload "+name, func() bool {
		seen := kueues.KindWorkload.New()
		return s.Cached.Get(t.Context(), client.ObjectKeyFromObject(live), seen) == nil && seen.GetResourceVersion() == live.GetResourceVersion()
	})
}

func (s *scene) live(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	w := s.named(name)
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	return w
}

// clone creates or changes the clone of a Workload on a worker, with these conditions, and waits for the hub's cache
// of it. Without a condition it deletes the clone.
func (s *scene) clone(t *testing.T, worker, name string, conditions ...any) {
	t.Helper()
	on, w := s.Worker(v1alpha1.ClusterName(worker)), s.named(name)
	if len(conditions) == 0 {
		check.Must(t, client.IgnoreNotFound(on.Admin.Delete(t.Context(), w)))
	} else {
		w.SetLabels(map[string]string{"kueue.x-k8s.io/multikueue-origin": "multikueue"})
		if err := on.Admin.Create(t.Context(), w.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		check.Must(t, s.patch(on.Admin, w, "status", map[string]any{"status": map[string]any{"conditions": conditions}}))
	}
	err := on.Admin.Get(t.Context(), client.ObjectKeyFromObject(w), w)
	check.Must(t, client.IgnoreNotFound(err))
	s.eventually(t, "the cache of "+worker+" has the clone of "+name, func() bool {
		if on.Connection.Status().State != remote.Connected {
			return false
		}
		seen := kueues.KindWorkload.New()
		got := on.Connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(w), seen)
		if err != nil {
			return apierrors.IsNotFound(got)
		}
		return got == nil && seen.GetResourceVersion() == w.GetResourceVersion()
	})
}

func is(kind, reason, message string) map[string]any {
	value := "True"
	if kind == kueues.QuotaReserved && reason != kueues.QuotaReserved {
		value = "False"
	}
	return map[string]any{"type": kind, "status": value, "reason": reason, "message": message}
}

// turn reconciles Workloads, and then the waiting list.
func (s *scene) turn(t *testing.T, names ...string) (last reconcile.Result) {
	t.Helper()
	for _, name := range names {
		var err error
		last, err = s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.Key(name)})
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

func (s *scene) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	gomega.NewWithT(t).Eventually(is, check.Patience, 20*time.Millisecond).Should(gomega.BeTrue(), what)
}
