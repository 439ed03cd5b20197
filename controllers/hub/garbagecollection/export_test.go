// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/requeue"
)

// NewReconciler has the Collector of a worker do what package mirror has it do, without the attempts.
func NewReconciler(o Options) reconcile.Reconciler {
	c := NewCollector(o)
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
		key := request.NamespacedName
		worker, err := copies.Connect(o.Cluster, o.Worker)
		if err != nil {
			return reconcile.Result{RequeueAfter: c.Disconnected(key)}, nil //nolint:nilerr // It is no failure.
		}
		if key.Namespace == "" {
			result.RequeueAfter, err = c.Execute(ctx, worker, key.Name)
			return requeue.AfterLag(result, err)
		}
		copy, err := worker.Cached(ctx, key)
		if err != nil {
			return result, err
		}
		var seen judgement.Seen
		if copy != nil {
			if seen, err = c.hub.see(ctx, c.here, copy); err != nil {
				return result, err
			}
		}
		result.RequeueAfter, err = c.Collect(ctx, worker, key, copy, seen, judgement.Of(seen).Copy)
		return requeue.AfterLag(result, err)
	})
}
