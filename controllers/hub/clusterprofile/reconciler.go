// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// Options are the options of the controller. All are required but Property.
type Options struct {
	// Hub reads WorkerClusters from the hub's caches, and writes them.
	Hub client.Client
	// Inventory reads the ClusterProfiles.
	Inventory *Inventory
	// Namespace is the manager's namespace, where the Secrets with kubeconfigs are.
	Namespace string
	// Property says which properties of a profile become labels of its WorkerCluster. Nil: none.
	Property func(name string) bool
	// Recorder records Events on ClusterProfiles and WorkerClusters.
	Recorder events.EventRecorder
}

// Reconciler makes WorkerClusters of ClusterProfiles. A request names both.
type Reconciler struct {
	Options
	inbox inbox.Inbox
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(options Options) *Reconciler {
	if options.Property == nil {
		options.Property = func(string) bool { return false }
	}
	return &Reconciler{Options: options}
}

// Reconcile brings the WorkerCluster of one name in line with the ClusterProfile of the name.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.Inventory.Synced() {
		return reconcile.Result{}, nil // All names come again when it is.
	}
	seen, err := r.observe(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	decided := decide(seen)
	if err := r.act(ctx, seen, decided); err != nil {
		return requeue.AfterConflict(reconcile.Result{}, err)
	}
	r.record(seen, decided)
	if decided.action != leave {
		log.FromContext(ctx).Info("Looked at ClusterProfile", "workerCluster", request.Name, "action", decided.action.String())
	}
	return reconcile.Result{}, nil
}

func (r *Reconciler) observe(ctx context.Context, name string) (observation, error) {
	seen := observation{origin: r.Inventory.namespace + "/" + name, property: r.Property}
	profile := &inventory.ClusterProfile{}
	err := r.Inventory.cache.Get(ctx, types.NamespacedName{Namespace: r.Inventory.namespace, Name: name}, profile)
	if client.IgnoreNotFound(err) != nil {
		return seen, fmt.Errorf("get ClusterProfile %s: %w", seen.origin, err)
	}
	if err == nil && profile.DeletionTimestamp == nil {
		seen.profile = profile
	}
	worker := &v1alpha1.WorkerCluster{}
	if err := r.Hub.Get(ctx, types.NamespacedName{Name: name}, worker); err == nil {
		seen.worker = worker
	} else if !apierrors.IsNotFound(err) {
		return seen, fmt.Errorf("get WorkerCluster %q: %w", name, err)
	}
	return seen, nil
}

func (r *Reconciler) act(ctx context.Context, seen observation, decided decision) error {
	switch decided.action {
	case create:
		if err := r.Hub.Create(ctx, decided.worker, records.FieldOwner); err != nil {
			return fmt.Errorf("create WorkerCluster %q: %w", decided.worker.Name, err)
		}
	case follow, uncordon, cordon:
		patch := client.MergeFromWithOptions(seen.worker, client.MergeFromWithOptimisticLock{})
		if err := r.Hub.Patch(ctx, decided.worker, patch, records.FieldOwner); err != nil {
			return fmt.Errorf("patch WorkerCluster %q: %w", decided.worker.Name, err)
		}
	case leave, refuse:
	}
	return nil
}
