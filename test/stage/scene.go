// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// Scene is what one test has on a Stage. The methods end the test at an error.
type Scene struct {
	*Stage
	// Namespace is the test's own.
	Namespace string
	// Clock starts now, in whole seconds as the API has them.
	Clock  *clocktesting.FakeClock
	Events *Events
}

var scenes atomic.Int32

// Scene returns a scene with a namespace on these servers, or on the hub and all workers if there are none. It deletes
// the TrainJobs and Dispatches there when the test ends, because the next test's controllers see the whole hub.
func (s *Stage) Scene(t testing.TB, on ...*Server) *Scene {
	t.Helper()
	scene := &Scene{
		Stage: s, Namespace: fmt.Sprintf("test-%d", scenes.Add(1)), Events: &Events{},
		Clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)),
	}
	if len(on) == 0 {
		on = append([]*Server{s.Hub}, s.Workers...)
	}
	for _, server := range on {
		check.Must(t, server.Admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: scene.Namespace}}))
	}
	for _, worker := range s.Workers {
		if worker.Connection != nil {
			AwaitConnected(t, worker.Connection)
		}
	}
	t.Cleanup(func() {
		for _, server := range on {
			kinds := []client.ObjectList{trainjobs.NewList()}
			if server == s.Hub {
				kinds = append(kinds, &v1alpha1.DispatchList{})
			}
			server.clear(t, scene.Namespace, kinds...)
		}
	})
	return scene
}

// clear deletes everything of these kinds, also what has finalizers.
func (s *Server) clear(t testing.TB, namespace string, kinds ...client.ObjectList) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, list := range kinds {
		check.Must(t, s.Admin.List(ctx, list, client.InNamespace(namespace)))
		check.Must(t, meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			check.Must(t, client.IgnoreNotFound(s.Admin.Delete(ctx, object)))
			s.RemoveFinalizers(t, object)
			return nil
		}))
	}
}

// RemoveFinalizers removes the finalizers of an object, if it exists, in place of the controllers that have set them.
func (s *Server) RemoveFinalizers(t testing.TB, object client.Object) {
	t.Helper()
	if len(object.GetFinalizers()) == 0 {
		return
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	check.Must(t, client.IgnoreNotFound(s.Admin.Patch(context.WithoutCancel(t.Context()), object, patch)))
}

// Create creates an object, and deletes it when the test ends.
func (s *Server) Create(t testing.TB, object client.Object) {
	t.Helper()
	check.Must(t, s.Admin.Create(t.Context(), object))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		check.Must(t, client.IgnoreNotFound(s.Admin.Delete(ctx, object, client.GracePeriodSeconds(0))))
	})
}

// Key is the key of an object in the scene's namespace.
func (s *Scene) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: name}
}

// Policy creates the DispatchPolicy of the scene's jobs. It has the name of the namespace.
func (s *Scene) Policy(t testing.TB, spec v1alpha1.DispatchPolicySpec) *v1alpha1.DispatchPolicy {
	t.Helper()
	spec.Jobs.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}
	policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}, Spec: spec}
	s.Hub.Create(t, policy)
	return policy
}

// Tombstone creates the Tombstone of a job in the scene's namespace.
func (s *Scene) Tombstone(t testing.TB, spec v1alpha1.TombstoneSpec) *v1alpha1.Tombstone {
	t.Helper()
	spec.Namespace = s.Namespace
	tombstone := &v1alpha1.Tombstone{ObjectMeta: metav1.ObjectMeta{Name: string(spec.TrainJob.UID)}, Spec: spec}
	s.Hub.Create(t, tombstone)
	return tombstone
}

// Settle waits until a client with caches shows what the hub has.
func (s *Scene) Settle(t testing.TB, cached client.Reader) {
	t.Helper()
	check.Eventually(t, "the hub's caches to show everything", func(g gomega.Gomega) {
		want := Versions(t, s.Hub.Admin)
		g.Expect(Versions(t, cached)).To(gomega.Equal(want))
	})
}

// Versions returns the versions of all objects that controllers write or decide by, sorted.
func Versions(t testing.TB, from client.Reader) (all []string) {
	t.Helper()
	for _, list := range []client.ObjectList{
		trainjobs.NewList(), &v1alpha1.DispatchList{}, &v1alpha1.DispatchPolicyList{}, &v1alpha1.WorkerClusterList{},
		&v1alpha1.TombstoneList{},
	} {
		check.Must(t, from.List(context.WithoutCancel(t.Context()), list))
		check.Must(t, meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			all = append(all, fmt.Sprintf("%T %s %s", object, client.ObjectKeyFromObject(object), object.GetResourceVersion()))
			return nil
		}))
	}
	slices.Sort(all)
	return all
}

// SettleCopy waits until the connection's cache shows a copy as the worker has it now. The cache never shows a TrainJob
// without the label of this hub.
func (s *Server) SettleCopy(t testing.TB, key client.ObjectKey) {
	t.Helper()
	check.Eventually(t, "worker's cache", func(g gomega.Gomega) {
		want := "none"
		if copy := ReadTrainJob(t, s.Admin, key); copy != nil && copy.GetLabels()[v1alpha1.LabelHub] == HubID {
			want = copy.GetResourceVersion()
		}
		got := "none"
		if copy := ReadTrainJob(t, s.Connection.Cache(), key); copy != nil {
			got = copy.GetResourceVersion()
		}
		g.Expect(got).To(gomega.Equal(want))
	})
}
