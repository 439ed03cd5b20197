// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

const (
	// A worker may say faultLimit times, and for faultTime, that it cannot create the copy because of a fault of its own.
	// Then another worker is tried. The faults of a worker whose etcd changes its leader last for seconds.
	faultLimit = 6
	faultTime  = 20 * time.Second
	// hangLimit is for how long in total the creations of one copy may hang until another worker is tried. A webhook hangs
	// for up to 30 s, and an API server works on a request for a minute at most.
	hangLimit = 45 * time.Second
	// slotWait is for how long a job waits for the creations of others. A creation that takes longer is taken to hang.
	slotWait = time.Second
)

// failures is how often the worker has failed to answer the creation of the copy, and for how long.
type failures struct {
	// faults counts the answers in which the worker said that something is wrong with it. faulty measures since the first.
	faults int
	faulty stopwatch
	// hung is the total time of the creations that ended with neither a copy nor a refusal.
	hung time.Duration
	// gaveUp says why no more creations are sent, nil while they are.
	gaveUp error
}

// noteFault counts an answer in which the worker says that something is wrong with it.
func (f *failures) noteFault(err error, now time.Time) {
	if isFault(err) {
		f.faults++
		f.faulty.elapsed(now)
	}
}

// tooManyFaults is true when another worker is to be tried.
func (f *failures) tooManyFaults(now time.Time) bool {
	return f.faults >= faultLimit && f.faulty.elapsed(now) >= faultTime
}

// noteHang adds the time of a creation that ended with neither a copy nor a refusal. It gives the worker up if the
// total is too long. Quick failures add almost nothing: they are counted as faults, or seen by probes.
func (f *failures) noteHang(worker v1alpha1.ClusterName, err error, took time.Duration) {
	if isAnswer(err) && !isFault(err) || remote.IsNotConnected(err) {
		return
	}
	if f.hung += took; f.hung < hangLimit {
		return
	}
	hung := f.hung.Round(time.Second)
	words := fmt.Sprintf("did not answer the creation of the copy for %s; check whether an admission webhook hangs there", hung)
	if isFault(err) {
		words = fmt.Sprintf("could not create the copy within %s: %s", hung, refusalWords(err))
	}
	f.gaveUp = refusal(fmt.Sprintf("worker %q %s", worker, words))
}

// creations bounds how many creations are under way at a time. If all of them hang, at a webhook of the worker say, the
// other goroutines of the mirror serve the jobs that run.
type creations struct {
	// slots has room for the creations that may be under way. Nil: there is no bound.
	slots chan struct{}

	mu sync.Mutex
	// began says when each creation under way began, by a number of its own. last is the last number. Both are under mu.
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

// begin waits until the creation may begin; ok is false if others hang. The caller calls end after the creation.
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
