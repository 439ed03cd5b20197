// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is the queue of one controller of one worker. It has no goroutine. client-go's queue with delays has two, which
// wake up twice a second, and a buffer of 8 KB. That is little for a process, and much for each of many workers.
type queue struct {
	workqueue.TypedInterface[reconcile.Request]
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	clock   clock.WithDelayedExecution

	mu sync.Mutex
	// later are the keys that are added after a delay, nil after ShutDown. mu guards it.
	later map[reconcile.Request]*delay
}

// delay is until when a key waits.
type delay struct {
	until time.Time
	timer clock.Timer
}

func newQueue(controller string, clock clock.WithDelayedExecution) *queue {
	return &queue{
		TypedInterface: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
			Queue: &counted{Queue: workqueue.DefaultQueue[reconcile.Request](), controller: controller},
		}),
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		clock:   clock, later: map[reconcile.Request]*delay{},
	}
}

// AddAfter adds a key after a delay. A key that waits already comes at the earlier time.
func (q *queue) AddAfter(request reconcile.Request, after time.Duration) {
	if after <= 0 {
		q.Add(request)
		return
	}
	next := &delay{until: q.clock.Now().Add(after)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.later == nil {
		return
	}
	if known := q.later[request]; known != nil {
		if !next.until.Before(known.until) {
			return
		}
		known.timer.Stop()
	}
	next.timer = q.clock.AfterFunc(after, func() { q.elapsed(request, next) })
	q.later[request] = next
}

// elapsed adds a key at the end of its delay, unless an earlier time has replaced it.
func (q *queue) elapsed(request reconcile.Request, ended *delay) {
	q.mu.Lock()
	current := q.later[request] == ended
	if current {
		delete(q.later, request)
	}
	q.mu.Unlock()
	if current {
		q.Add(request)
	}
}

// AddRateLimited adds a key after its back-off.
func (q *queue) AddRateLimited(request reconcile.Request) {
	q.AddAfter(request, q.limiter.When(request))
}

// Forget ends the back-off of a key.
func (q *queue) Forget(request reconcile.Request) { q.limiter.Forget(request) }

// NumRequeues returns how often a key has failed.
func (q *queue) NumRequeues(request reconcile.Request) int { return q.limiter.NumRequeues(request) }

// ShutDown ends the queue, and forgets the keys that wait for a delay.
func (q *queue) ShutDown() {
	q.mu.Lock()
	for _, waiting := range q.later {
		waiting.timer.Stop()
	}
	q.later = nil
	q.mu.Unlock()
	q.TypedInterface.ShutDown()
}

// end ends the queue and takes the keys that are left. Nobody reconciles them, and the metric would count them for ever: a
// key that came while it was reconciled, and all keys of a controller whose source has failed.
func (q *queue) end() {
	q.ShutDown()
	for {
		request, ended := q.Get()
		if ended {
			return
		}
		q.Done(request)
	}
}

// counted counts the keys that wait, in the metric of all queues.
type counted struct {
	workqueue.Queue[reconcile.Request]
	controller string
}

// Push adds a key.
func (c *counted) Push(request reconcile.Request) {
	depth.WithLabelValues(c.controller, c.controller, "").Inc()
	c.Queue.Push(request)
}

// Pop takes a key.
func (c *counted) Pop() reconcile.Request {
	depth.WithLabelValues(c.controller, c.controller, "").Dec()
	return c.Queue.Pop()
}
