// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// indexLive has the Dispatches by worker that there may be something to do about on it. Finished ones are not in it,
	// so that what is done for all jobs of a worker costs nothing for them.
	indexLive = "trainyard.live"
	// indexMoving has the Dispatches whose jobs are on their way from drained workers, under the value moving.
	indexMoving = "trainyard.moving"
	moving      = "true"
	// indexOrigin has the Tombstones by the UID of their TrainJob. It has the name of a field by which the API server
	// selects too.
	indexOrigin = "spec.trainJob.uid"
)

// AddIndexes adds the indexes that the functions of this package need to caches of the hub.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return errors.Join(
		indexer.IndexField(ctx, &v1alpha1.Dispatch{}, indexLive, liveClusterOf),
		indexer.IndexField(ctx, &v1alpha1.Dispatch{}, indexMoving, movingOf),
		indexer.IndexField(ctx, &v1alpha1.Tombstone{}, indexOrigin, originOf),
	)
}

func liveClusterOf(object client.Object) []string {
	if d, ok := object.(*v1alpha1.Dispatch); ok && d.Spec.Cluster != "" && record.StateOf(d) != record.Finished {
		return []string{string(d.Spec.Cluster)}
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

// Live lists the Dispatches of a worker that there may be something to do about. They belong to the cache.
func Live(ctx context.Context, hub client.Reader, worker v1alpha1.ClusterName) ([]v1alpha1.Dispatch, error) {
	var found v1alpha1.DispatchList
	err := hub.List(ctx, &found, client.MatchingFields{indexLive: string(worker)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Dispatches of worker %q: %w", worker, err)
	}
	return found.Items, nil
}

// Moving lists the Dispatches whose jobs are on their way from drained workers. They belong to the cache.
func Moving(ctx context.Context, hub client.Reader) ([]v1alpha1.Dispatch, error) {
	var found v1alpha1.DispatchList
	if err := hub.List(ctx, &found, client.MatchingFields{indexMoving: moving}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Dispatches that move: %w", err)
	}
	return found.Items, nil
}
