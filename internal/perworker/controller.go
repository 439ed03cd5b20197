// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
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

// instance is one controller of one worker. It does what controller-runtime's controllers do, without their goroutines:
// those wait for keys, as many as keys may be reconciled at once, on each worker. An instance starts a goroutine for a
// key, and has one that waits.
type instance struct {
	name        string
	reconciler  reconcile.Reconciler
	concurrency int
	sources     []source.Source
	inbox       inbox.Inbox
	log         logr.Logger
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
	i := &instance{
		name: kind.Name, reconciler: reconciler, concurrency: max(kind.Concurrency, 1), log: log.WithValues("controller", kind.Name),
		apart: kind.Apart, done: make(chan struct{}),
	}
	failedReconciles.WithLabelValues(kind.Name) // Prometheus cannot see the first failure in a series that begins with it.
	i.sources = append(i.sources, i.inbox.Source())
	if !kind.Apart {
		i.sources = append(i.sources, source.Kind[client.Object](connection.Cache(), trainjobs.New(), &handler.EnqueueRequestForObject{}))
	}
	if kind.Sources != nil {
		i.sources = append(i.sources, kind.Sources(worker, connection.Cache())...)
	}
	return i, nil
}

// start runs the controller until stop, or until ctx ends.
func (i *instance) start(ctx context.Context, failed func(error)) {
	ctx, i.cancel = context.WithCancel(ctx)
	go func() {
		defer close(i.done)
		if err := i.run(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}()
}

// stop ends the controller. It waits for the running reconciles, which end with their context.
func (i *instance) stop() {
	i.cancel()
	<-i.done
}

// run starts the sources, and reconciles keys once the sources have given what was there at the start.
func (i *instance) run(ctx context.Context) error {
	queue := newQueue(i.name, clock.RealClock{})
	defer queue.end() // After the running reconciles: their keys may come back.
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for _, from := range i.sources {
		if err := from.Start(ctx, queue); err != nil {
			return fmt.Errorf("start source of controller %q: %w", i.name, err)
		}
	}
	for _, from := range i.sources {
		if syncing, ok := from.(source.SyncingSource); ok {
			if err := syncing.WaitForSync(ctx); err != nil {
				return fmt.Errorf("wait for source of controller %q: %w", i.name, err)
			}
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, i.concurrency)
	for {
		slots <- struct{}{} // First: a key that nobody reconciles stays in the queue, which Busy counts.
		request, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		running.Go(func() {
			defer func() { <-slots }()
			defer queue.Done(request)
			i.next(ctx, queue, request)
		})
	}
}

// next reconciles a key, and adds it to the queue again if it is due later.
func (i *instance) next(ctx context.Context, queue *queue, request reconcile.Request) {
	log := i.log.WithValues("object", klog.KRef(request.Namespace, request.Name))
	result, err := i.reconcile(ctrllog.IntoContext(ctx, log), request)
	switch {
	case err != nil:
		failedReconciles.WithLabelValues(i.name).Inc()
		if !errors.Is(err, reconcile.TerminalError(nil)) {
			queue.AddRateLimited(request)
		}
		log.Error(err, "Reconciler error")
	case result.RequeueAfter > 0:
		queue.Forget(request)
		queue.AddAfter(request, result.RequeueAfter)
	default:
		queue.Forget(request)
	}
}

// reconcile turns a panic into an error.
func (i *instance) reconcile(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			for _, handle := range utilruntime.PanicHandlers { // They log the stack.
				handle(ctx, value)
			}
			err = fmt.Errorf("panic: %v [recovered]", value)
		}
	}()
	return i.reconciler.Reconcile(ctx, request)
}
