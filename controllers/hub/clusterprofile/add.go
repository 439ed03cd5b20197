// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Add adds the controller and its inventory to the manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	r.Inventory.changed = r.enqueue
	r.Inventory.filled = r.enqueueWorkers
	err := ctrl.NewControllerManagedBy(mgr).
		Named("clusterprofile").
		For(&v1alpha1.WorkerCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(r.inbox.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // They are few.
		Complete(r)
	if err != nil {
		return fmt.Errorf("add clusterprofile controller: %w", err)
	}
	return mgr.Add(r.Inventory)
}

func (r *Reconciler) enqueue(name string) { r.inbox.Add(types.NamespacedName{Name: name}) }

// enqueueWorkers enqueues all WorkerClusters: a profile may have been deleted while no manager worked.
func (r *Reconciler) enqueueWorkers(ctx context.Context) {
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list WorkerClusters from the cache")
		return
	}
	for i := range workers.Items {
		r.enqueue(workers.Items[i].Name)
	}
}

// differs says whether a change of a profile changes anything that becomes part of a WorkerCluster. Inventories renew
// conditions and times of observation all the time.
func differs(before, after *inventory.ClusterProfile) bool {
	return before.UID != after.UID || !before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!slices.EqualFunc(before.Status.Properties, after.Status.Properties, func(a, b inventory.Property) bool {
			return a.Name == b.Name && a.Value == b.Value
		})
}
