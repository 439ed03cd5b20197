// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// shared lets all who ask a worker the same at the same time share one answer. Many clients poll. An answer never is
// older than the question: who asks while an answer is under way gets the next one.
type shared struct {
	// timeout is how long an answer may take.
	timeout time.Duration

	mu sync.Mutex
	// byKey under mu.
	byKey map[string]*turns
}

func newShared(timeout time.Duration) *shared {
	return &shared{timeout: timeout, byKey: map[string]*turns{}}
}

// turns are the fetches of one question. next is nil while nobody waits for another one.
type turns struct {
	next *turn
}

// turn is one fetch. done is closed when the others can be read.
type turn struct {
	fetch func(context.Context) (*chunk, error)
	done  chan struct{}
	chunk *chunk
	err   error
}

// get returns what fetch returns, of this caller's or of another one's.
func (s *shared) get(ctx context.Context, key string, fetch func(context.Context) (*chunk, error)) (*chunk, error) {
	mine := s.join(ctx, key, fetch)
	select {
	case <-mine.done:
		return mine.chunk, mine.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *shared) join(ctx context.Context, key string, fetch func(context.Context) (*chunk, error)) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := &turn{fetch: fetch, done: make(chan struct{})}
	all, running := s.byKey[key]
	switch {
	case !running:
		s.byKey[key] = &turns{}
		go s.run(context.WithoutCancel(ctx), key, mine)
	case all.next == nil:
		all.next = mine
	default:
		mine = all.next
	}
	return mine
}

// run fetches until nobody waits. The first caller may go meanwhile.
func (s *shared) run(ctx context.Context, key string, now *turn) {
	for now != nil {
		limited, cancel := context.WithTimeout(ctx, s.timeout)
		now.err = guarded(func() (err error) { now.chunk, err = now.fetch(limited); return err })
		cancel()
		close(now.done)
		s.mu.Lock()
		now = s.byKey[key].next
		if s.byKey[key].next = nil; now == nil {
			delete(s.byKey, key)
		}
		s.mu.Unlock()
	}
}

// guarded returns a panic as an error. What a worker answers must not end the process.
func guarded(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the answer could not be handled, because of a fault of Trainyard: %v\n%s", value, debug.Stack())
		}
	}()
	return f()
}
