// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"sync"
	"time"
)

const (
	// burstPause is how long no job may have waited for a burst to be over.
	burstPause = 5 * time.Second
	// firstLook is after how long a deletion that waits looks for the first time whether the burst is over.
	firstLook = time.Second
	// maxDeletionDelay is how long the deletion of a finished copy waits at most.
	maxDeletionDelay = time.Minute
)

// burst knows when jobs last waited. Between the jobs of a burst there are moments in which none waits.
type burst struct {
	mu   sync.Mutex
	last time.Time // under mu; zero: never
}

// lasts takes in whether jobs wait now, and returns whether the burst goes on.
func (b *burst) lasts(waiting bool, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if waiting {
		b.last = now
	}
	return !b.last.IsZero() && now.Sub(b.last) < burstPause
}

// nextLook says in how long to look again at a finished copy whose retention has been over for a time. Zero: it is
// deleted now.
//
// Nobody waits for that deletion. So while a burst of jobs goes on (busy), the API servers have their time for the
// jobs. The time until the next look doubles: a copy is looked at seven times at most, however long the burst is.
func nextLook(waited time.Duration, busy bool) time.Duration {
	if !busy || waited >= maxDeletionDelay {
		return 0
	}
	return min(max(firstLook, waited), maxDeletionDelay-waited)
}
