// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/inbox"
)

// minBackoff and maxBackoff limit the retries of one key. The worker's rate limiter limits the retries of all keys.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// instance is one controller of one worker.
type instance struct {
	controller controller.Controller
	inbox      inbox.Inbox
	// apart instances get no keys of jobs.
	apart  bool
	cancel context.CancelFunc
	done   chan struct{}
}

// newInstance makes a controller of kind for a worker.
func newInstance[C Connection](
	ctx context.Context, kind Kind[C], worker v1alpha1.ClusterName, connection C, swept func() bool, log logr.Logger,
) (*instance, error) {
	reconciler, err := kind.New(ctx, worker, connection, swept)
	if err != nil {
		return nil, fmt.Errorf("make controller %q: %w", kind.Name, err)
	}
	c, err := controller.NewUnmanaged(kind.Name, controller.Options{
		Logger:                  log, // No manager sets a logger here. Without a logger no error would be seen.
		Reconciler:              reconciler,
		MaxConcurrentReconciles: kind.Concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		// The priority queue of controller-runtime v0.24.1 may hold its lock for ever on shutdown
		// (https://github.com/kubernetes-sigs/controller-runtime/issues/3538). A reconnection waits for that.
		UsePriorityQueue:   ptr.To(false),
		SkipNameValidation: ptr.To(true), // Every worker has a controller of this name.
	})
	if err != nil {
		return nil, fmt.Errorf("make controller %q: %w", kind.Name, err)
	}
	i := &instance{controller: c, apart: kind.Apart, done: make(chan struct{})}
	err = c.Watch(i.inbox.Source())
	if !kind.Apart {
		copies := source.Kind[client.Object](connection.Cache(), trainjobs.New(), &handler.EnqueueRequestForObject{})
		err = errors.Join(err, c.Watch(copies))
	}
	if kind.Source != nil {
		err = errors.Join(err, c.Watch(kind.Source(worker, connection.Cache())))
	}
	return i, err
}

// start runs the controller until stop, or until ctx ends.
func (i *instance) start(ctx context.Context, failed func(error)) {
	ctx, i.cancel = context.WithCancel(ctx)
	go func() {
		defer close(i.done)
		if err := i.controller.Start(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}()
}

// stop ends the controller. It waits for the running reconciles, which end with their context.
func (i *instance) stop() {
	i.cancel()
	<-i.done
}
