// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// alarms add keys to a queue at a time of the clock that measures deadlines. The delays of a queue use another clock.
type alarms struct {
	clock clock.WithDelayedExecution
	inbox adder

	mu     sync.Mutex
	timers map[types.NamespacedName]clock.Timer // under mu
}

func newAlarms(c clock.WithDelayedExecution, inbox adder) *alarms {
	return &alarms{clock: c, inbox: inbox, timers: map[types.NamespacedName]clock.Timer{}}
}

// set adds a key at a time, and drops the time that was set before. Zero: the key is not added.
func (a *alarms) set(key types.NamespacedName, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if timer, ok := a.timers[key]; ok {
		timer.Stop()
		delete(a.timers, key)
	}
	if at.IsZero() {
		return
	}
	a.timers[key] = a.clock.AfterFunc(max(at.Sub(a.clock.Now()), time.Millisecond), func() { a.inbox.Add(key) })
	if !at.After(a.clock.Now()) { // The clock may have moved since the timer was set.
		a.inbox.Add(key)
	}
}
