// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inbox adds keys to a controller's queue that do not come from its watches.
//
// An Inbox never blocks the caller of Add. It keeps keys that are added before its controller runs. Add its Source to
// the controller:
//
//	box := &inbox.Inbox{}
//	builder.WatchesRawSource(box.Source())
//	box.Add(key)
package inbox

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Inbox is a source of keys for one controller. The zero value is ready.
type Inbox struct {
	mu sync.Mutex
	// queue is nil until the controller starts. early are the keys that were added before. mu guards both.
	queue requestQueue
	early []reconcile.Request
}

// Source returns the source that the controller watches.
func (i *Inbox) Source() source.Source {
	return source.Func(func(_ context.Context, queue requestQueue) error {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.queue = queue
		for _, request := range i.early {
			queue.Add(request)
		}
		i.early = nil
		return nil
	})
}

// Waiting returns how many keys wait only because the controller is busy. Keys in work or with a delay do not count.
func (i *Inbox) Waiting() int {
	i.mu.Lock()
	queue, early := i.queue, len(i.early)
	i.mu.Unlock()
	if queue == nil {
		return early
	}
	return queue.Len()
}

// Add adds a key to the queue.
func (i *Inbox) Add(key types.NamespacedName) {
	i.AddAfter(key, 0)
}

// AddAfter adds a key to the queue after a delay, unless somebody adds the key earlier.
func (i *Inbox) AddAfter(key types.NamespacedName, delay time.Duration) {
	request := reconcile.Request{NamespacedName: key}
	i.mu.Lock()
	queue := i.queue
	if queue == nil {
		i.early = append(i.early, request)
	}
	i.mu.Unlock()
	if queue != nil {
		queue.AddAfter(request, delay)
	}
}

// AtEnd calls the functions when the manager ends. They cancel the subscriptions that fill an Inbox.
func AtEnd(mgr ctrl.Manager, cancels ...func()) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		for _, cancel := range cancels {
			cancel()
		}
		return nil
	}))
}
