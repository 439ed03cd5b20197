// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"sync"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// subscription keeps which Clusters have changed until its goroutine calls notify for them.
type subscription struct {
	notify func(v1alpha1.ClusterName, Status)
	wake   chan struct{}

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		changed map[v1alpha1.ClusterName]*Cluster
	}
}

func newSubscription(notify func(v1alpha1.ClusterName, Status)) *subscription {
	s := &subscription{notify: notify, wake: make(chan struct{}, 1)}
	s.locked.changed = map[v1alpha1.ClusterName]*Cluster{}
	return s
}

// add records a change. It never blocks.
func (s *subscription) add(c *Cluster) {
	s.mu.Lock()
	s.locked.changed[c.name] = c
	s.mu.Unlock()
	poke(s.wake)
}

func (s *subscription) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		changed := s.locked.changed
		s.locked.changed = map[v1alpha1.ClusterName]*Cluster{}
		s.mu.Unlock()
		for name, c := range changed {
			if ctx.Err() != nil {
				return
			}
			s.notify(name, c.Status())
		}
	}
}

// poke wakes the reader of a channel of capacity one. If nobody reads now, the next read returns at once.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
