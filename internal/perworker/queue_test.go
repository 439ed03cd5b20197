// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/test/check"
)

// TestDelays checks when keys come that were added with a delay.
func TestDelays(t *testing.T) {
	tests := map[string]struct {
		reason string
		add    func(*queue, reconcile.Request)
		// want is after how long the key comes.
		want time.Duration
	}{
		"Once":    {reason: "It comes at its time.", want: 5 * time.Second, add: func(q *queue, key reconcile.Request) { q.AddAfter(key, 5*time.Second) }},
		"Earlier": {reason: "The earlier time counts.", want: 2 * time.Second, add: func(q *queue, key reconcile.Request) { q.AddAfter(key, 5*time.Second); q.AddAfter(key, 2*time.Second) }},
		"Later":   {reason: "The earlier time counts.", want: 2 * time.Second, add: func(q *queue, key reconcile.Request) { q.AddAfter(key, 2*time.Second); q.AddAfter(key, 5*time.Second) }},
		"NoDelay": {reason: "It comes at once.", add: func(q *queue, key reconcile.Request) { q.AddAfter(key, 0) }},
		"Failed": {reason: "The third failure waits for four times the first back-off.", want: 4 * minBackoff, add: func(q *queue, key reconcile.Request) {
			q.limiter.When(key)
			q.limiter.When(key)
			q.AddRateLimited(key)
		}},
		"Forgotten": {reason: "A success ends the back-off.", want: minBackoff, add: func(q *queue, key reconcile.Request) {
			q.limiter.When(key)
			q.Forget(key)
			q.AddRateLimited(key)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			q := newQueue("delays", clock)
			defer q.ShutDown()
			key := reconcile.Request{NamespacedName: types.NamespacedName{Name: "job"}}
			test.add(q, key)
			if test.want > 0 {
				clock.Step(test.want - time.Millisecond)
				check.Equal(t, 0, q.Len(), "%s keys too early", test.reason)
				clock.Step(time.Millisecond)
			}
			check.Equal(t, 1, q.Len(), "%s keys", test.reason)
			check.Equal(t, 1, served(t, "workqueue_depth", "delays"), "keys in controller-runtime's metric")
			got, _ := q.Get()
			check.Equal(t, 0, served(t, "workqueue_depth", "delays"), "keys in controller-runtime's metric after one is taken")
			check.Equal(t, key, got, "%s the key", test.reason)
			q.Done(key)
			clock.Step(time.Hour)
			check.Equal(t, 0, q.Len(), "%s keys that come again", test.reason)
			check.Equal(t, false, clock.HasWaiters(), "timers that are left")
		})
	}
}

// TestShutDown checks that no key comes after the end of a queue, and that no timer is left.
func TestShutDown(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	q := newQueue("end", clock)
	key := reconcile.Request{NamespacedName: types.NamespacedName{Name: "job"}}
	q.AddAfter(key, time.Second)
	q.ShutDown()
	q.AddAfter(key, time.Second)
	check.Equal(t, false, clock.HasWaiters(), "timers that are left")
	if _, ended := q.Get(); !ended {
		t.Error("the queue gives a key after its end")
	}
}
