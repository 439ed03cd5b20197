// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inbox brings keys into a controller's queue from outside of its watches.
//
// An Inbox never blocks whoever adds to it, and keeps what is added before its controller runs. Add its Source to the
// controller:
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Inbox belongs to one controller. The zero value is ready.
type Inbox struct {
	mu sync.Mutex
	// queue is nil until the controller starts; early keeps what was added before. Both under mu.
	queue requestQueue
	early []reconcile.Request
}

// Source is what the controller watches.
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

// Waiting is how many keys the controller could begin with now, if it could do more at a time. What it has in hand, and
// what comes after a delay, does not count.
func (i *Inbox) Waiting() int {
	i.mu.Lock()
	queue, early := i.queue, len(i.early)
	i.mu.Unlock()
	if queue == nil {
		return early
	}
	return queue.Len()
}

// Add brings a key into the queue.
func (i *Inbox) Add(key types.NamespacedName) {
	i.AddAfter(key, 0)
}

// AddAfter brings a key into the queue after a delay, unless it comes in sooner otherwise.
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
