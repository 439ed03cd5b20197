// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/remote"
)

// defaultCapacityInterval keeps `kubectl get workerclusters` fresh, with at most 12 writes a minute for each worker.
const defaultCapacityInterval = 5 * time.Second

// NewReconciler makes the controller's reconciler.
func NewReconciler(options Options) *Reconciler {
	if options.CapacityInterval == 0 {
		options.CapacityInterval = defaultCapacityInterval
	}
	return &Reconciler{Options: options}
}

// Add adds the controller to the manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("workercluster").
		For(&v1alpha1.WorkerCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.WorkerCluster{}, handler.EnqueueRequestsFromMapFunc(r.allWorkers), builder.WithPredicates(identityTaken())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.workersOfSecret)).
		Watches(&v1alpha1.Dispatch{}, r.countJobsOf()).
		WatchesRawSource(r.inbox.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add workercluster controller: %w", err)
	}
	cancels := []func(){r.Fleet.Subscribe(func(name v1alpha1.ClusterName, _ remote.Status) { r.enqueue(name) })}
	if r.Agents != nil {
		cancels = append(cancels, r.Agents.Subscribe(r.enqueue))
	}
	if r.Runtimes != nil {
		cancels = append(cancels, r.Runtimes.Subscribe(func(name v1alpha1.ClusterName, _ []types.NamespacedName) { r.enqueueLazily(name) }))
	}
	return inbox.AtEnd(mgr, cancels...)
}

// identityTaken lets a change through that takes or frees a cluster ID: other WorkerClusters may lead to that cluster.
func identityTaken() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*v1alpha1.WorkerCluster), e.ObjectNew.(*v1alpha1.WorkerCluster)
			return before.Status.ClusterID != after.Status.ClusterID
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func (r *Reconciler) allWorkers(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.workersWhere(ctx, func(*v1alpha1.WorkerCluster) bool { return true })
}

func (r *Reconciler) workersOfSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	if secret.GetNamespace() != r.Credentials.Namespace {
		return nil
	}
	return r.workersWhere(ctx, func(worker *v1alpha1.WorkerCluster) bool {
		reference := worker.Spec.Connection.KubeconfigSecretRef
		return reference != nil && reference.Name == secret.GetName()
	})
}

func (r *Reconciler) workersWhere(ctx context.Context, match func(*v1alpha1.WorkerCluster) bool) []reconcile.Request {
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list WorkerClusters from the cache")
		return nil
	}
	var requests []reconcile.Request
	for i := range workers.Items {
		if match(&workers.Items[i]) {
			requests = append(requests, requestFor(v1alpha1.ClusterName(workers.Items[i].Name)))
		}
	}
	return requests
}

// EnqueuePath enqueues the workers whose kubeconfig is this file.
func (r *Reconciler) EnqueuePath(path string) {
	for _, name := range r.watches.withFile(path) {
		r.enqueue(name)
	}
}

func requestFor(name v1alpha1.ClusterName) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: string(name)}}
}

func (r *Reconciler) enqueue(name v1alpha1.ClusterName) {
	r.inbox.Add(requestFor(name).NamespacedName)
}

// enqueueLazily enqueues a worker after CapacityInterval, and so gathers further changes.
func (r *Reconciler) enqueueLazily(name v1alpha1.ClusterName) {
	r.inbox.AddAfter(requestFor(name).NamespacedName, r.CapacityInterval)
}

// countJobsOf enqueues the workers of a Dispatch that is created, moves, finishes or is deleted, to count their jobs.
func (r *Reconciler) countJobsOf() handler.EventHandler {
	add := func(object client.Object) {
		if dispatch := object.(*v1alpha1.Dispatch); dispatch.Spec.Cluster != "" {
			r.enqueueLazily(dispatch.Spec.Cluster)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.ObjectOld)
			add(e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.Object)
		},
	}
}
