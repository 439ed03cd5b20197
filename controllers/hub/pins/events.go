// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Name names the controllers of this package.
const Name = "pins"

// Events gives the namespaces of pinned runtimes in a worker's cache, and of copies that go and name one.
func Events(of cache.Cache) []source.Source {
	runtime := &metav1.PartialObjectMetadata{}
	runtime.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
	namespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
	})
	pinned := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[v1alpha1.LabelPinned] != "" })
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(e event.DeleteEvent) bool {
			return e.Object.GetAnnotations()[v1alpha1.AnnotationPinnedRuntime] != ""
		},
	}
	return []source.Source{
		source.Kind[client.Object](of, runtime, namespace, pinned),
		source.Kind[client.Object](of, trainjobs.New(), namespace, gone),
	}
}

// Namespaces returns the namespaces of the pinned runtimes in a worker's cache.
func Namespaces(ctx context.Context, of client.Reader) (sets.Set[string], error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind + "List"))
	if err := of.List(ctx, list, client.HasLabels{v1alpha1.LabelPinned}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list TrainingRuntimes from the cache: %w", err)
	}
	namespaces := sets.Set[string]{}
	for i := range list.Items {
		namespaces.Insert(list.Items[i].Namespace)
	}
	return namespaces, nil
}
