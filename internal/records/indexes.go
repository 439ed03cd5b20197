// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// indexLive has the Dispatches that may need work on their worker, by worker. It leaves out finished Dispatches, so
	// that work for all jobs of a worker costs nothing for them.
	indexLive = "trainyard.live"
	// indexMoving has the Dispatches whose jobs move away from drained workers, under the value moving.
	indexMoving = "trainyard.moving"
	// indexDependent has the Dispatches of indexLive that name dependencies, by worker and under the value anywhere.
	indexDependent = "trainyard.dependent"
	anywhere       = "*"
	moving         = "true"
	// indexOrigin has the Tombstones by the UID of their TrainJob. The API server selects by this field too.
	indexOrigin = "spec.trainJob.uid"
)

// AddIndexes adds the indexes that the functions of this package need to the hub's cache.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return errors.Join(
		indexer.IndexField(ctx, &v1alpha1.Dispatch{}, indexLive, liveClusterOf),
		indexer.IndexField(ctx, &v1alpha1.Dispatch{}, indexMoving, movingOf),
		indexer.IndexField(ctx, &v1alpha1.Dispatch{}, indexDependent, dependentOf),
		indexer.IndexField(ctx, &v1alpha1.Tombstone{}, indexOrigin, originOf),
	)
}

func liveClusterOf(object client.Object) []string {
	if d, ok := object.(*v1alpha1.Dispatch); ok && d.Spec.Cluster != "" && record.StateOf(d) != record.Finished {
		return []string{string(d.Spec.Cluster)}
	}
	return nil
}

func dependentOf(object client.Object) []string {
	if d, ok := object.(*v1alpha1.Dispatch); ok && len(d.Spec.Dependencies) > 0 {
		if on := liveClusterOf(d); on != nil {
			return append(on, anywhere)
		}
	}
	return nil
}

func movingOf(object client.Object) []string {
	if d, ok := object.(*v1alpha1.Dispatch); ok && record.IsMoving(d) {
		return []string{moving}
	}
	return nil
}

func originOf(object client.Object) []string {
	if tombstone, ok := object.(*v1alpha1.Tombstone); ok {
		return []string{string(tombstone.Spec.TrainJob.UID)}
	}
	return nil
}

// Live lists the Dispatches that may need work on a worker. They belong to the cache: do not change them.
func Live(ctx context.Context, hub client.Reader, worker v1alpha1.ClusterName) ([]v1alpha1.Dispatch, error) {
	var found v1alpha1.DispatchList
	err := hub.List(ctx, &found, client.MatchingFields{indexLive: string(worker)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Dispatches of worker %q: %w", worker, err)
	}
	return found.Items, nil
}

// LiveIn is Live for the Dispatches of one namespace.
func LiveIn(ctx context.Context, hub client.Reader, worker v1alpha1.ClusterName, namespace string) ([]v1alpha1.Dispatch, error) {
	var found v1alpha1.DispatchList
	err := hub.List(ctx, &found, client.InNamespace(namespace), client.MatchingFields{indexLive: string(worker)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Dispatches of worker %q in namespace %q: %w", worker, namespace, err)
	}
	return found.Items, nil
}

// Dependent lists the Dispatches of a namespace that may need objects there on a worker. They belong to the cache: do not
// change them.
func Dependent(ctx context.Context, hub client.Reader, worker v1alpha1.ClusterName, namespace string) ([]v1alpha1.Dispatch, error) {
	return dependent(ctx, hub, string(worker), namespace)
}

// WorkersOf returns the workers of the Dispatches of a namespace that may need an object there.
func WorkersOf(ctx context.Context, hub client.Reader, namespace string, dependency v1alpha1.Dependency) (sets.Set[v1alpha1.ClusterName], error) {
	all, err := dependent(ctx, hub, anywhere, namespace)
	workers := sets.Set[v1alpha1.ClusterName]{}
	for i := range all {
		if slices.Contains(all[i].Spec.Dependencies, dependency) {
			workers.Insert(all[i].Spec.Cluster)
		}
	}
	return workers, err
}

func dependent(ctx context.Context, hub client.Reader, value, namespace string) ([]v1alpha1.Dispatch, error) {
	var found v1alpha1.DispatchList
	err := hub.List(ctx, &found, client.InNamespace(namespace), client.MatchingFields{indexDependent: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Dispatches with dependencies in namespace %q: %w", namespace, err)
	}
	return found.Items, nil
}

// Moving lists the Dispatches whose jobs move away from drained workers. They belong to the cache: do not change them.
func Moving(ctx context.Context, hub client.Reader) ([]v1alpha1.Dispatch, error) {
	var found v1alpha1.DispatchList
	if err := hub.List(ctx, &found, client.MatchingFields{indexMoving: moving}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Dispatches that move: %w", err)
	}
	return found.Items, nil
}

// Job reads the TrainJob of a name, on the hub or on a worker. It returns nil if there is none.
func Job(
	ctx context.Context, reader client.Reader, key types.NamespacedName, options ...client.GetOption,
) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	switch err := reader.Get(ctx, key, job, options...); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	return job, nil
}

// Dispatch reads the Dispatch of a name. It returns nil if there is none.
func Dispatch(
	ctx context.Context, reader client.Reader, key types.NamespacedName, options ...client.GetOption,
) (*v1alpha1.Dispatch, error) {
	d := &v1alpha1.Dispatch{}
	switch err := reader.Get(ctx, key, d, options...); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	return d, nil
}
