// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TombstoneOf returns the spec of the Tombstone of a Dispatch's attempt: the cluster may have a copy of that attempt.
func TombstoneOf(d *v1alpha1.Dispatch, clusterID types.UID) v1alpha1.TombstoneSpec {
	return v1alpha1.TombstoneSpec{
		Cluster: d.Spec.Cluster, ClusterID: clusterID, TrainJob: d.Spec.TrainJob, Namespace: d.Namespace,
		Attempt: d.Spec.Attempt,
	}
}

// TombstoneNames returns the names that the Tombstone of an attempt may have. The first name is the UID of its
// TrainJob. The second name is for a job that already has a Tombstone of another cluster.
func TombstoneNames(origin types.UID, attempt int32) []string {
	return []string{string(origin), fmt.Sprintf("%s-%d", origin, attempt)}
}

// AddTombstone writes a Tombstone, unless one already covers spec. It returns whether it wrote one. reader is live.
func AddTombstone(
	ctx context.Context, hub client.Client, reader client.Reader, spec v1alpha1.TombstoneSpec,
) (written bool, err error) {
	for _, name := range TombstoneNames(spec.TrainJob.UID, spec.Attempt) {
		err := hub.Create(ctx, &v1alpha1.Tombstone{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, FieldOwner)
		if err == nil {
			return true, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("create Tombstone of TrainJob %s/%s on worker %q: %w",
				spec.Namespace, spec.TrainJob.Name, spec.Cluster, err)
		}
		if found, err := isTombstone(ctx, reader, name, spec); found || err != nil {
			return false, err
		}
	}
	return false, nil
}

// HasTombstone is true if a Tombstone covers spec.
func HasTombstone(ctx context.Context, reader client.Reader, spec v1alpha1.TombstoneSpec) (bool, error) {
	for _, name := range TombstoneNames(spec.TrainJob.UID, spec.Attempt) {
		if found, err := isTombstone(ctx, reader, name, spec); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// isTombstone is true if the named Tombstone is of this job and cluster, and of this attempt or a later one.
func isTombstone(ctx context.Context, reader client.Reader, name string, spec v1alpha1.TombstoneSpec) (bool, error) {
	tombstone := &v1alpha1.Tombstone{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, tombstone); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get Tombstone %q: %w", name, err)
	}
	there := tombstone.Spec
	return there.ClusterID == spec.ClusterID && there.TrainJob.UID == spec.TrainJob.UID &&
		there.Attempt >= spec.Attempt, nil
}

// Keep keeps the attempt of a job beyond its Dispatch: it writes a Tombstone. It returns true once the hub's cache has
// the Tombstone, because reconcilers continue the count from the cache. reader reads from the hub's API server.
func Keep(
	ctx context.Context, hub client.Client, reader client.Reader, spec v1alpha1.TombstoneSpec,
) (kept bool, err error) {
	if spec.ClusterID == "" || spec.Attempt < 1 {
		return true, nil // Nothing is written to a worker before its ID is on record, so this attempt never had a copy.
	}
	if kept, err := HasTombstone(ctx, hub, spec); kept || err != nil {
		return kept, err
	}
	if _, err := AddTombstone(ctx, hub, reader, spec); err != nil {
		return false, err
	}
	return HasTombstone(ctx, hub, spec)
}

// Tombstones returns the Tombstones of a TrainJob. They belong to the cache. A cached reader needs the indexes.
func Tombstones(ctx context.Context, hub client.Reader, origin types.UID) ([]v1alpha1.Tombstone, error) {
	var found v1alpha1.TombstoneList
	err := hub.List(ctx, &found, client.MatchingFields{indexOrigin: string(origin)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Tombstones of TrainJob %q: %w", origin, err)
	}
	return slices.DeleteFunc(found.Items, func(t v1alpha1.Tombstone) bool { return t.Spec.TrainJob.UID != origin }), nil
}
