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

// Refusing is the Collector of a worker that has refused to be swept.
func Refusing(words string) Collector { return refusing{words: words} }

type refusing struct {
	nobody
	words string
}

func (r refusing) SweepRefused() (words string, refused bool) { return r.words, true }
