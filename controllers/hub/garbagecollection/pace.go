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
	// firstLook is how long a deletion waits before it looks for the first time whether the burst is over.
	firstLook = time.Second
	// maxDeletionDelay is how long the deletion of a finished copy waits at most.
	maxDeletionDelay = time.Minute
)

// burst knows when jobs last waited. Between the jobs of a burst there are moments without a waiting job.
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

// nextLook says after which time to look again at a finished copy. waited is the time since the end of its retention.
// Zero means that the copy is deleted now.
//
// Nobody waits for that deletion. So during a burst of jobs (busy) the API servers have their time for the jobs. The
// time until the next look doubles: the manager looks at a copy seven times at most, however long the burst is.
func nextLook(waited time.Duration, busy bool) time.Duration {
	if !busy || waited >= maxDeletionDelay {
		return 0
	}
	return min(max(firstLook, waited), maxDeletionDelay-waited)
}

// apart adds to the time until a look up to as much again, by the UID of the copy. The copies that are looked at wait
// in the queue by which a burst is recognised. So if all of a burst's copies were looked at in one moment, they would
// seem to be the next burst.
func apart(look time.Duration, uid types.UID) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	return look + time.Duration(float64(look)*float64(hash.Sum32())/math.MaxUint32)
}
