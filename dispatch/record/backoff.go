// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "time"

// MinBackoff and MaxBackoff limit Backoff.
const (
	MinBackoff = time.Minute
	MaxBackoff = 30 * time.Minute
)

// Backoff is how long something is not tried again that has failed a number of times: MinBackoff after the first time,
// doubled each time up to MaxBackoff. A worker that refused a copy, or has a foreign job of its name, is not asked
// again for so long, and nobody is stopped for a job for which others were stopped in vain.
func Backoff(count int32) time.Duration {
	if count <= 0 {
		return 0
	}
	delay := MinBackoff
	for ; count > 1 && delay < MaxBackoff; count-- {
		delay *= 2
	}
	return min(delay, MaxBackoff)
}
