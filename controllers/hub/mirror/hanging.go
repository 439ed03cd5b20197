// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/remote"
)

const (
	// hangLimit is for how long, all in all, creations of one copy may hang until another worker is tried. A webhook
	// hangs for up to 30 s, and an API server works on a request for a minute at most.
	hangLimit = 45 * time.Second
	// slotWait is how old a creation is that is taken to hang, and for how long, at most, a job waits for the creations
	// of others.
	slotWait = time.Second
)

// noteHang adds the time that a creation took which brought neither a copy nor a refusal. It returns why the worker is
// given up, nil as long as it is not. Quick failures add next to nothing: they are counted, or the connection's probes
// see what is wrong.
func (r *reconciler) noteHang(err error, took time.Duration, past *recollection) error {
	if isAnswer(err) && !isFault(err) || remote.IsNotConnected(err) {
		return nil
	}
	if past.hung += took; past.hung < hangLimit {
		return nil
	}
	hung := past.hung.Round(time.Second)
	if isFault(err) {
		return refusal(fmt.Sprintf("worker %q could not create the copy within %s: %s", r.Cluster, hung, refusalWords(err)))
	}
	return refusal(fmt.Sprintf("worker %q did not answer the creation of the copy for %s; does an admission webhook hang there?",
		r.Cluster, hung))
}

// creations bounds how many creations on a worker are under way at a time. A creation hangs where a webhook of the
// worker does. What the other goroutines of the mirror do, for jobs that run, goes on meanwhile.
type creations struct {
	// slots has room for those that may be under way. Nil: there is no bound.
	slots chan struct{}

	mu sync.Mutex
	// began says when each creation began that is under way, by a number of its own. last is the last number. Both under
	// mu.
	began map[int]time.Time
	last  int
}

func newCreations(limit int) *creations {
	c := &creations{began: map[int]time.Time{}}
	if limit > 0 {
		c.slots = make(chan struct{}, limit)
	}
	return c
}

// begin waits for its turn, but not behind creations that hang: then ok is false. end has to be called after the
// creation.
func (c *creations) begin(ctx context.Context, clock clock.Clock) (end func(), ok bool) {
	if c.slots == nil {
		return func() {}, true
	}
	select {
	case c.slots <- struct{}{}:
		return c.begun(clock), true
	default:
	}
	patience := slotWait - c.oldest(clock)
	if patience <= 0 {
		return nil, false
	}
	timer := clock.NewTimer(patience)
	defer timer.Stop()
	select {
	case c.slots <- struct{}{}:
		return c.begun(clock), true
	case <-timer.C():
	case <-ctx.Done():
	}
	return nil, false
}

func (c *creations) begun(clock clock.Clock) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	number := c.last
	c.began[number] = clock.Now()
	return func() {
		c.mu.Lock()
		delete(c.began, number)
		c.mu.Unlock()
		<-c.slots
	}
}

// oldest is for how long the oldest creation has been under way.
func (c *creations) oldest(clock clock.Clock) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest time.Duration
	for _, began := range c.began {
		oldest = max(oldest, clock.Since(began))
	}
	return oldest
}
