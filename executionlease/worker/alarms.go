// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// alarms bring keys back into a queue at a time of the clock by which deadlines are measured. A queue's own delays are by another one.
type alarms struct {
	clock clock.WithDelayedExecution
	bell  bell

	mu     sync.Mutex
	timers map[types.NamespacedName]clock.Timer // under mu
}

func newAlarms(c clock.WithDelayedExecution, b bell) *alarms {
	return &alarms{clock: c, bell: b, timers: map[types.NamespacedName]clock.Timer{}}
}

// set has a key come back at a time, and not at the one that was set before. Zero: not at all.
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
	a.timers[key] = a.clock.AfterFunc(max(at.Sub(a.clock.Now()), time.Millisecond), func() { a.bell.Add(key) })
	if !at.After(a.clock.Now()) { // It may have become so since the timer was set.
		a.bell.Add(key)
	}
}
