// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"sync/atomic"
	"time"
)

// CountPages returns how many pages are computed from now on. Call it before the first page is open.
func (b *Board) CountPages() *atomic.Int64 {
	count, before := &atomic.Int64{}, b.pages.spent
	b.pages.spent = func(took time.Duration) {
		count.Add(1)
		before(took)
	}
	return count
}
