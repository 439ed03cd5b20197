// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// beat is the shortest time between two updates of pages.
	beat = 500 * time.Millisecond
	// restFactor is how many times as long as pages take nothing is computed after them: they take a tenth of one core at
	// most.
	restFactor = 9
)

// pulse wakes streams after changes, as seldom as it has to.
type pulse struct {
	clock clock.WithTicker
	// took is how long pages have taken since the last beat, in nanoseconds.
	took atomic.Int64

	mu sync.Mutex
	// next is closed at the next beat. Under mu.
	next chan struct{}
}

func newPulse(c clock.WithTicker) *pulse { return &pulse{clock: c, next: make(chan struct{})} }

// spent counts time that pages have taken.
func (p *pulse) spent(took time.Duration) { p.took.Add(int64(took)) }

// wait returns a channel that is closed at the next beat.
func (p *pulse) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// run beats after changes, until ctx ends.
func (p *pulse) run(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		close(p.next)
		p.next = make(chan struct{})
		p.mu.Unlock()
		rest := max(beat, restFactor*time.Duration(p.took.Swap(0)))
		select {
		case <-p.clock.After(rest):
		case <-ctx.Done():
			return
		}
	}
}
