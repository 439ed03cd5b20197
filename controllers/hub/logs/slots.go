// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import "context"

const (
	// readsOfWorker and reads are how many logs are read at the same time, on one worker and on all.
	readsOfWorker, reads = 8, 32
	// followsOfWorker and follows are how many logs are followed at the same time. Each may need as much memory as is kept
	// of a log.
	followsOfWorker, follows = 16, 64
)

// Slots bound how many logs this process reads.
type Slots struct{ read, follow semaphore }

// NewSlots returns the slots for all workers.
func NewSlots() *Slots { return &Slots{read: make(semaphore, reads), follow: make(semaphore, follows)} }

// semaphore lets as many work at the same time as it has room.
type semaphore chan struct{}

// wait waits for a slot.
func (s semaphore) wait(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try takes a slot if one is free.
func (s semaphore) try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s semaphore) leave() { <-s }
