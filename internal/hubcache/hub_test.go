// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"context"
	"fmt"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error { return s.InstallConfig(ctx) })

func TestMain(m *testing.M) { shared.Main(m) }

// scene is a hub with jobs, and caches that begin with them.
type scene struct {
	*stage.Scene
	hub    *Hub
	client client.Client
	cache  cache.Cache
	// readRest lets the caches read what has finished.
	readRest func()
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return &scene{Scene: shared.Get(t).Scene(t)}
}

// start starts the caches, with pages of two objects. Dispatches that have finished wait for readRest.
func (s *scene) start(t *testing.T) {
	t.Helper()
	hub, err := New(Options{Config: s.Hub.Cluster.Config, PageSize: 2})
	check.Must(t, err)
	gate := make(chan struct{})
	s.hub, s.readRest, hub.dispatches.after = hub, func() { close(gate) }, gate
	all, err := cluster.New(s.Hub.Cluster.Config, func(o *cluster.Options) {
		o.Scheme, o.Client.Cache, o.NewClient = s.Scheme, &client.CacheOptions{Unstructured: true}, hub.NewClient
		o.Cache.NewInformer = hub.NewInformer
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			trainjobs.New(): {Transform: trainjobs.StripOf(v1alpha1.ManagedByMultiKueue)}, &v1alpha1.Dispatch{}: {Transform: StripDispatch},
		}
	})
	check.Must(t, err)
	check.Must(t, records.AddIndexes(t.Context(), all.GetFieldIndexer()))
	check.Must(t, Fill(t.Context(), all.GetCache()))
	stop := stage.Run(all)
	t.Cleanup(func() { check.Must(t, stop()) })
	s.client, s.cache = all.GetClient(), all.GetCache()
	if !s.cache.WaitForCacheSync(t.Context()) {
		t.Fatal("the caches do not begin")
	}
}

// live makes a job with a Dispatch.
func (s *scene) live(t *testing.T, name string) {
	t.Helper()
	s.Copied(t, s.Place(t, s.Submit(t, name), "east", func(d *v1alpha1.Dispatch) { d.Finalizers = []string{v1alpha1.FinalizerCopy} }))
}

// finish ends a job with a Dispatch.
func (s *scene) finish(t *testing.T, name string) {
	t.Helper()
	stage.Report(t, s.Hub.Admin, stage.ReadTrainJob(t, s.Hub.Admin, s.Key(name)), trainer.TrainJobComplete, 0)
	d := s.Dispatch(t, name)
	d.Status.Phase = v1alpha1.PhaseFinished
	s.SetCondition(t, d, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete)
}

func (s *scene) finished(t *testing.T, name string) {
	t.Helper()
	s.live(t, name)
	s.finish(t, name)
}

// names are those of the scene that a list has.
func (s *scene) names(t *testing.T, list client.ObjectList) (names []string) {
	t.Helper()
	check.Must(t, s.cache.List(t.Context(), list, client.InNamespace(s.Namespace)))
	switch l := list.(type) {
	case *v1alpha1.DispatchList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	case *unstructured.UnstructuredList:
		for i := range l.Items {
			names = append(names, l.Items[i].GetName())
		}
	}
	slices.Sort(names)
	return names
}

// wantCached waits until the caches have all objects as the API server has them.
func (s *scene) wantCached(t *testing.T) {
	t.Helper()
	check.Eventually(t, "the caches to have all", func(g gomega.Gomega) {
		g.Expect(s.hub.dispatches.isOver() && s.hub.jobs.isOver()).To(gomega.BeTrue())
	})
	s.Settle(t, s.client)
}

// A start has what is live at once, and what has finished later. Meanwhile nothing counts as gone that is not read yet.
func TestFinishedComeLast(t *testing.T) {
	s := newScene(t)
	for _, name := range []string{"a", "c", "e", "g", "h"} {
		s.finished(t, name)
	}
	for i := range 12 { // Otherwise it would be cheaper to list all.
		s.finished(t, fmt.Sprintf("old-%02d", i))
	}
	s.live(t, "b")
	s.Submit(t, "d") // It came while no manager ran.
	s.start(t)
	check.Diff(t, []string{"b"}, s.names(t, &v1alpha1.DispatchList{}), "the Dispatches at the start")
	check.Diff(t, []string{"b"}, s.names(t, trainjobs.NewList()), "the TrainJobs at the start")

	patient := Patiently(t.Context())
	d, err := records.Dispatch(t.Context(), s.client, s.Key("a"))
	if err != nil || d == nil || !d.IsFinished() {
		t.Errorf("the Dispatch of a finished job is %v, %v", d, err)
	}
	job, err := records.Job(t.Context(), s.client, s.Key("d"))
	if err != nil || job == nil {
		t.Errorf("a job without a Dispatch is %v, %v", job, err)
	}
	gone, err := records.Job(t.Context(), s.client, s.Key("nobody"))
	if gone != nil || err != nil {
		t.Errorf("a job that is not there is %v, %v", gone, err)
	}
	for _, name := range []string{"a", "nobody"} {
		if _, err := records.Dispatch(patient, s.client, s.Key(name)); !IsUnread(err) {
			t.Errorf("a patient read of Dispatch %s says %v", name, err)
		}
	}
	if d, err := records.Dispatch(patient, s.client, s.Key("b")); d == nil || err != nil {
		t.Errorf("a patient read of a live Dispatch says %v, %v", d, err)
	}

	// What happens before they are read comes by the watch, and they do not undo it.
	check.Must(t, s.Hub.Admin.Delete(t.Context(), stage.ReadTrainJob(t, s.Hub.Admin, s.Key("c"))))
	s.Hub.RemoveFinalizers(t, s.Dispatch(t, "c"))
	check.Must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, "c")))
	check.Must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, "e"))) // It stays, because of its finalizer.
	labelled := stage.ReadTrainJob(t, s.Hub.Admin, s.Key("g"))
	labelled.SetLabels(map[string]string{"kept": "yes"})
	check.Must(t, s.Hub.Admin.Update(t.Context(), labelled))
	s.finish(t, "b")
	s.live(t, "f")
	check.Eventually(t, "the watch to bring what happens", func(g gomega.Gomega) {
		g.Expect(s.names(t, &v1alpha1.DispatchList{})).To(gomega.Equal([]string{"b", "e", "f"}))
		g.Expect(s.names(t, trainjobs.NewList())).To(gomega.Equal([]string{"b", "f", "g"}))
	})

	s.readRest()
	s.wantCached(t)
	if _, err := records.Dispatch(patient, s.client, s.Key("nobody")); err != nil {
		t.Errorf("a patient read of a Dispatch that is not there says %v after all were read", err)
	}
	if live, err := records.Live(t.Context(), s.client, "east"); err != nil || len(live) != 2 { // e is being deleted, f runs.
		t.Errorf("%d Dispatches need work, %v", len(live), err)
	}
	s.live(t, "i")
	s.finish(t, "f")
	s.wantCached(t)
}

// A watch that has missed something makes the informer list again. Such a list has all: the informer deletes what it
// lacks.
func TestListedAgain(t *testing.T) {
	s := newScene(t)
	for i := range 25 {
		s.finished(t, fmt.Sprintf("job-%02d", i))
	}
	s.live(t, "live")
	s.start(t)
	check.Equal(t, 1, len(s.names(t, &v1alpha1.DispatchList{})), "Dispatches at the start")
	dispatches := s.hub.dispatches
	dispatches.mu.Lock()
	rest := dispatches.rest
	dispatches.mu.Unlock()
	rest <- watch.Event{Type: watch.Error, Object: &expired.ErrStatus}
	s.wantCached(t)
	list, err := dispatches.ListWithContext(t.Context(), metav1.ListOptions{})
	check.Must(t, err)
	objects, err := meta.ExtractList(list)
	check.Must(t, err)
	for _, object := range objects {
		if _, ok := object.(packed); !ok && unpack(object).(*v1alpha1.Dispatch).IsFinished() {
			t.Errorf("a list has %T", object)
		}
	}
}

// A hub whose API server cannot select Dispatches by their phase has all read at once, as an older one.
func TestHubThatCannotSelect(t *testing.T) {
	s := newScene(t)
	for i := range 5 {
		s.finished(t, fmt.Sprintf("job-%d", i))
	}
	s.live(t, "live")
	s.withoutSelector(t)
	s.start(t)
	check.Equal(t, 6, len(s.names(t, &v1alpha1.DispatchList{})), "Dispatches at the start")
	s.wantCached(t)
}

// withoutSelector takes the selectable field out of the CRD until the test ends.
func (s *scene) withoutSelector(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	check.Must(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(s.Hub.Cluster.Config, client.Options{Scheme: scheme})
	check.Must(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "dispatches.trainyard.dev"}}
	selectable := func(patch string, want bool) {
		check.Must(t, c.Patch(context.WithoutCancel(t.Context()), crd, client.RawPatch(types.JSONPatchType, []byte(patch))))
		check.Eventually(t, "the API server to read the CRD", func(g gomega.Gomega) {
			err := s.Hub.Admin.List(context.WithoutCancel(t.Context()), &v1alpha1.DispatchList{}, client.MatchingFields{phaseField: "Finished"})
			g.Expect(apierrors.IsBadRequest(err)).To(gomega.Equal(!want))
		})
	}
	const path = "/spec/versions/0/selectableFields"
	selectable(`[{"op":"remove","path":"`+path+`"}]`, false)
	t.Cleanup(func() { selectable(`[{"op":"add","path":"`+path+`","value":[{"jsonPath":".status.phase"}]}]`, true) })
}
