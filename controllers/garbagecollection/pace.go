// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// deletionsAtOnce and deletionsPerSecond are how many finished copies are deleted from a worker without delay.
	deletionsAtOnce    = 20
	deletionsPerSecond = 10
	// maxDeletionDelay is how long a copy waits for its turn at most.
	maxDeletionDelay = time.Minute
)

// pace spreads the deletions of finished copies. Nobody waits for them, and in a burst of short jobs the worker's API server has its time
// for the copies that are to start.
type pace struct {
	mu      sync.Mutex
	limiter *rate.Limiter                      // under mu
	turns   map[types.NamespacedName]time.Time // of copies that wait; under mu
}

func newPace() *pace {
	return &pace{limiter: rate.NewLimiter(deletionsPerSecond, deletionsAtOnce), turns: map[types.NamespacedName]time.Time{}}
}

// delay is how long it is until it is the turn of a copy. Zero: it is. Then, and if it is not to be deleted any more, forget has to be called.
func (p *pace) delay(copy types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn, ok := p.turns[copy]
	if !ok {
		reserved := p.limiter.ReserveN(now, 1)
		delay := reserved.DelayFrom(now)
		if delay > maxDeletionDelay {
			reserved.CancelAt(now) // Those behind it would wait for nothing.
			delay = maxDeletionDelay
		}
		turn = now.Add(delay)
		p.turns[copy] = turn
	}
	return max(0, turn.Sub(now))
}

func (p *pace) forget(copy types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.turns, copy)
}
