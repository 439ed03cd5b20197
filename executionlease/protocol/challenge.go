// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Challenge is what an agent writes into an ExecutionLease and the hub repeats. The zero value is no challenge. The
// greater of two challenges was written later.
type Challenge struct {
	// Run counts the takeovers by agents. Number counts the challenges of one run.
	Run, Number int64
}

// ParseChallenge reads "<run>.<number>", both positive. Any other text gives the zero value.
func ParseChallenge(text string) Challenge {
	run, number, _ := strings.Cut(text, ".")
	c := Challenge{Run: positive(run), Number: positive(number)}
	if c.Run == 0 || c.Number == 0 || c.String() != text {
		return Challenge{}
	}
	return c
}

// String returns "<run>.<number>", and "" for the zero value.
func (c Challenge) String() string {
	if c.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d.%d", c.Run, c.Number)
}

// IsZero is true for the zero value.
func (c Challenge) IsZero() bool { return c == Challenge{} }

// Compare orders challenges by the time at which they were written.
func (c Challenge) Compare(other Challenge) int {
	return cmp.Or(cmp.Compare(c.Run, other.Run), cmp.Compare(c.Number, other.Number))
}

// Next is the least challenge after c.
func (c Challenge) Next() Challenge {
	return Challenge{Run: c.Run, Number: c.Number + 1}
}

func positive(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
