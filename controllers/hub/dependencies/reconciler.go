// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// Reconcile writes what has changed on the hub of the objects that jobs in a namespace name, and deletes the objects on
// record that nobody needs. The key has the namespace as its name.
func (k *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker, err := copies.Connect(k.Cluster, k.Worker)
	if err != nil {
		return reconcile.Result{}, nil // Not connected: the next connection brings the namespaces again.
	}
	if !k.turn.take() {
		return reconcile.Result{RequeueAfter: requeue.ConflictDelay}, nil
	}
	defer k.turn.giveBack()
	if err := k.load(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if err := k.update(ctx, worker, request.Name); err != nil {
		return requeue.AfterConflict(reconcile.Result{}, err)
	}
	return k.clear(ctx, worker, request.Name)
}

// Recorded returns the namespaces of the objects on record.
func (k *Reconciler) Recorded(ctx context.Context) (sets.Set[string], error) {
	if !k.turn.take() {
		return nil, requeue.Outdated("dependencies are being written to the worker")
	}
	defer k.turn.giveBack()
	if err := k.load(ctx); err != nil {
		return nil, err
	}
	namespaces := sets.Set[string]{}
	for o := range k.recorded {
		namespaces.Insert(o.Namespace)
	}
	return namespaces, nil
}

// update writes the outdated objects of a namespace that jobs name, and those on record that copies name.
func (k *Reconciler) update(ctx context.Context, worker copies.Worker, namespace string) error {
	named, err := k.namedByJobs(ctx, namespace, "")
	if err != nil {
		return err
	}
	byCopies, err := k.namedByCopies(ctx, worker, namespace, "")
	if err != nil {
		return err
	}
	for o := range byCopies {
		if k.recorded[o] { // A worker writes its copies: it must not get what no job has named.
			named.Insert(o)
		}
	}
	if err := k.updateAll(ctx, worker, namespace, named); err != nil {
		return err
	}
	pulled, _ := k.known.pulled(named)
	return k.updateAll(ctx, worker, namespace, pulled)
}

// updateAll writes the outdated ones of objects of a namespace.
func (k *Reconciler) updateAll(ctx context.Context, worker copies.Worker, namespace string, named sets.Set[object]) error {
	var all []wanted
	for o := range named {
		one, err := k.consented(ctx, namespace, []dependency{o.Dependency})
		if err != nil {
			return err
		}
		if known := k.known.of(o); len(one) > 0 && known.source != one[0].source {
			all = append(all, one...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if words, err := k.closed(ctx, worker, namespace); words != "" || err != nil {
		return client.IgnoreNotFound(err) // The namespace comes with the first copy.
	}
	if err := k.record(ctx, all); err != nil {
		return err
	}
	return k.writeAll(ctx, worker, all, "")
}

// clear deletes the objects of a namespace on record that neither jobs nor copies name. While the hub's caches may lag
// behind an earlier leader, it deletes nothing.
func (k *Reconciler) clear(ctx context.Context, worker copies.Worker, namespace string) (reconcile.Result, error) {
	unneeded, err := k.unneeded(ctx, worker, namespace)
	if err != nil || len(unneeded) == 0 {
		return reconcile.Result{}, err
	}
	if wait := records.StartLag - k.Clock.Since(k.started); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	for _, o := range unneeded { // From here on, Bring waits for the turn.
		k.known.note(o, there{version: k.known.of(o).version})
	}
	if unneeded, err = k.unneeded(ctx, worker, namespace); err != nil {
		return reconcile.Result{}, err
	}
	var gone []object
	for _, o := range unneeded {
		if err = k.delete(ctx, worker, o); err != nil {
			break
		}
		log.FromContext(ctx).Info("Deleted object that no job needs", "namespace", o.Namespace, "kind", o.Kind, "name", o.Name)
		gone = append(gone, o)
	}
	if saveErr := k.strike(ctx, gone); err == nil {
		err = saveErr
	}
	return requeue.AfterConflict(reconcile.Result{}, err)
}

func (k *Reconciler) unneeded(ctx context.Context, worker copies.Worker, namespace string) (unneeded []object, err error) {
	var ofNamespace []object
	for o := range k.recorded {
		if o.Namespace == namespace {
			ofNamespace = append(ofNamespace, o)
		}
	}
	if len(ofNamespace) == 0 {
		return nil, nil
	}
	named, err := k.named(ctx, worker, namespace, "")
	if err != nil {
		return nil, err
	}
	for _, o := range ofNamespace {
		if !named.Has(o) {
			unneeded = append(unneeded, o)
		}
	}
	return unneeded, nil
}
