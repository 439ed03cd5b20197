// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// concurrency is how many workers are looked at at a time. A worker that does not answer holds one place for twice the
// Timeout in each retry interval, so it takes hundreds of such workers to delay the renewals of others. A place costs a
// goroutine.
const concurrency = 256

// Add adds the controller to the manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("credentials").
		For(&v1alpha1.WorkerCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.workersOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add credentials controller: %w", err)
	}
	return nil
}

func (r *Reconciler) workersOf(ctx context.Context, secret client.Object) []reconcile.Request {
	if secret.GetNamespace() != r.Loader.Namespace {
		return nil
	}
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list WorkerClusters from the cache")
		return nil
	}
	var requests []reconcile.Request
	for i := range workers.Items {
		if reference := workers.Items[i].Spec.Connection.KubeconfigSecretRef; reference != nil && reference.Name == secret.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: workers.Items[i].Name}})
		}
	}
	return requests
}
