// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"hash/fnv"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// burstPause is how long no job must have waited before a burst is over.
	burstPause = 5 * time.Second
	// firstCheck is the delay before the first check for a burst.
	firstCheck = time.Second
	// maxDeletionDelay is how long the deletion of a finished copy waits at most.
	maxDeletionDelay = time.Minute
)

// burst knows when jobs last waited. Between the jobs of a burst there are moments without a waiting job.
type burst struct {
	mu   sync.Mutex
	last time.Time // under mu; zero: never
}

// lasts records whether jobs wait now, and returns whether the burst goes on.
func (b *burst) lasts(waiting bool, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if waiting {
		b.last = now
	}
	return !b.last.IsZero() && now.Sub(b.last) < burstPause
}

// nextCheck is the delay until the next check of a finished copy. waited is the time since the end of its retention.
// Zero means that the copy is deleted now.
//
// Nobody waits for that deletion. So during a burst of jobs (busy) the API servers can serve the jobs first. The delay
// doubles with each check: the manager checks a copy seven times at most, however long the burst is.
func nextCheck(waited time.Duration, busy bool) time.Duration {
	if !busy || waited >= maxDeletionDelay {
		return 0
	}
	return min(max(firstCheck, waited), maxDeletionDelay-waited)
}

// apart spreads the checks of copies: it adds to a delay a part of the delay that depends on the UID of the copy. The
// manager recognises a burst by the length of a queue, and copies that are checked wait in this queue. So if all copies
// of a burst were checked at the same time, they would look like the next burst.
func apart(look time.Duration, uid types.UID) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	return look + time.Duration(float64(look)*float64(hash.Sum32())/math.MaxUint32)
}
