// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"encoding/json"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// One worker may cause writesPerSecond writes on the hub and bytesPerSecond of objects, and for a moment as many as the
	// bursts say. The hub's etcd keeps all versions of five minutes: these are 158 MiB of one worker, of 2 GiB.
	writesPerSecond, writesBurst = 100, 1000
	bytesPerSecond, bytesBurst   = 512 << 10, 8 << 20
	// longestTurn is how far ahead writes are promised. A copy whose turn would come later asks again after this time.
	longestTurn = 30 * time.Second
)

// turn is when a write of a change may come that waits for the worker's budget, zero if none waits.
type turn struct{ at time.Time }

// due is how long until the turn comes. It takes the write from the budget when it is asked first.
func (t *turn) due(budget *Budget, size int, now time.Time) time.Duration {
	if t.at.IsZero() {
		wait, ok := budget.promise(now, size)
		if !ok {
			return wait
		}
		t.at = now.Add(wait)
	}
	return max(0, t.at.Sub(now))
}

// Budget is what one worker may make the manager write on the hub. It outlives the connections of the worker. Its
// methods may be called concurrently.
type Budget struct{ writes, bytes *rate.Limiter }

// NewBudget returns the budget of a worker.
func NewBudget() *Budget {
	return &Budget{writes: rate.NewLimiter(writesPerSecond, writesBurst), bytes: rate.NewLimiter(bytesPerSecond, bytesBurst)}
}

// promise takes a write of so many bytes, which may come after the returned time. If that is too long, it takes
// nothing, returns false, and the caller asks again after that time.
func (b *Budget) promise(now time.Time, size int) (wait time.Duration, ok bool) {
	if b == nil {
		return 0, true
	}
	write, bytes := b.writes.ReserveN(now, 1), b.bytes.ReserveN(now, min(size, bytesBurst))
	if wait = max(write.DelayFrom(now), bytes.DelayFrom(now)); wait > longestTurn {
		write.CancelAt(now)
		bytes.CancelAt(now)
		return longestTurn, false
	}
	return wait, true
}

// spend takes a write that does not wait: the first status of a copy, or its end. Changes wait for it.
func (b *Budget) spend(now time.Time, size int) {
	_, _ = b.promise(now, size)
}

// Budgets has the budgets of all workers.
type Budgets struct {
	mu sync.Mutex
	// of is under mu.
	of map[v1alpha1.ClusterName]*Budget
}

// Of returns the budget of a worker, always the same one.
func (b *Budgets) Of(worker v1alpha1.ClusterName) *Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[v1alpha1.ClusterName]*Budget{}
	}
	if b.of[worker] == nil {
		b.of[worker] = NewBudget()
	}
	return b.of[worker]
}

// sizeOf is about how many bytes of an object the hub's API server stores.
func sizeOf(object any) int {
	encoded, err := json.Marshal(object)
	if err != nil {
		return bytesBurst // It will not be written.
	}
	return len(encoded)
}
