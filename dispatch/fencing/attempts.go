// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// AttemptMemory is how long the attempt of a copy is remembered that is not seen any more. A creation that was on its way for longer
// is known by its challenge.
const AttemptMemory = time.Hour

// sweepSize is how many entries there have to be before old ones are looked for.
const sweepSize = 1000

// Attempts remembers the highest attempt that was seen of each hub TrainJob. The zero value is ready for use.
type Attempts struct {
	seen map[types.UID]sighting
	// sweepAt is the number of entries at which old ones are removed next.
	sweepAt int
}

type sighting struct {
	attempt int64
	at      time.Time
}

// See notes that a copy with this attempt exists, or did until now, and returns the highest attempt that was seen of its origin.
func (a *Attempts) See(origin types.UID, attempt int64, now time.Time) (highest int64) {
	if a.seen == nil {
		a.seen, a.sweepAt = map[types.UID]sighting{}, sweepSize
	}
	highest = max(attempt, a.seen[origin].attempt)
	a.seen[origin] = sighting{attempt: highest, at: now}
	if len(a.seen) >= a.sweepAt {
		maps.DeleteFunc(a.seen, func(_ types.UID, s sighting) bool { return now.Sub(s.at) > AttemptMemory })
		a.sweepAt = max(sweepSize, 2*len(a.seen))
	}
	return highest
}
