// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const sweepPage = 500

// Sweep deletes the outdated copies on a worker before anything is created there: copies of attempts that have ended,
// and copies that Tombstones name. It asks the worker's API server, because after a time without connection the caches
// may lack copies. The quarantine holds the copies that the hub does not know, and the reconciler looks at them.
//
// If the worker refuses the sweep, its status says why until a sweep succeeds.
func Sweep(ctx context.Context, options Options) error {
	r := &reconciler{Options: options}
	err := r.sweep(ctx)
	r.Quarantine.sweepEnded(r.Cluster, err)
	return err
}

func (r *reconciler) sweep(ctx context.Context) error {
	worker, err := r.Worker.Client()
	if err != nil {
		return err
	}
	reader, err := r.Worker.APIReader()
	if err != nil {
		return err
	}
	if err := r.Quarantine.recall(ctx, r.Cluster); err != nil { // The findings of an earlier process stay.
		return err
	}
	suspects := map[types.NamespacedName]suspect{}
	for next := ""; ; {
		copies := &metav1.PartialObjectMetadataList{}
		copies.SetGroupVersionKind(trainjobs.NewList().GroupVersionKind())
		err := reader.List(ctx, copies, client.MatchingLabels{v1alpha1.LabelHub: r.HubID}, client.Limit(sweepPage), client.Continue(next))
		if err != nil {
			return fmt.Errorf("list copies on worker %q: %w", r.Cluster, err)
		}
		for i := range copies.Items {
			if err := r.sweepCopy(ctx, worker, &copies.Items[i], suspects); err != nil {
				return err
			}
		}
		if next = copies.Continue; next == "" {
			break
		}
	}
	r.Quarantine.swept(r.Cluster, suspects)
	return r.enqueueTombstones(ctx)
}

// sweepCopy deletes one copy if it is outdated, and adds it to the suspects if the hub does not know it.
func (r *reconciler) sweepCopy(
	ctx context.Context, worker client.Client, copy *metav1.PartialObjectMetadata, suspects map[types.NamespacedName]suspect,
) error {
	hub, err := r.observe(ctx, r.Hub, copy)
	if err != nil {
		return err
	}
	copy.SetGroupVersionKind(trainjobs.GroupVersionKind) // The items of a list have no kind.
	switch judge(r.here(), copy, hub) {
	case outdated:
		return r.delete(ctx, worker, copy, "outdated")
	case unknown, adoptable, postponed:
		suspects[client.ObjectKeyFromObject(copy)] = r.newSuspect(copy)
	case needed, ended:
	}
	return nil
}

// enqueueTombstones enqueues all Tombstones of the cluster, also Tombstones without a copy.
func (r *reconciler) enqueueTombstones(ctx context.Context) error {
	var tombstones v1alpha1.TombstoneList
	if err := r.Hub.List(ctx, &tombstones, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Tombstones: %w", err)
	}
	for i := range tombstones.Items {
		if tombstones.Items[i].Spec.ClusterID == r.ClusterID {
			r.Quarantine.Enqueue(r.Cluster, keyOfTombstone(&tombstones.Items[i]))
		}
	}
	return nil
}
