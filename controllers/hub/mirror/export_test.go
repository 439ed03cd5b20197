// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import "time"

// Drain takes all writes of some time from the budget, beside those that it has saved.
func (b *Budget) Drain(now time.Time, ahead time.Duration) {
	b.writes.ReserveN(now, writesBurst)
	for range int(ahead.Seconds()) {
		b.writes.ReserveN(now, writesPerSecond)
	}
}
