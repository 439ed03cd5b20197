// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Challenge is what an agent writes into an ExecutionLease and the hub repeats. The zero value is none. Of two, the greater one was
// written later.
type Challenge struct {
	// Run counts the agents that have taken over, Number the challenges of one.
	Run, Number int64
}

// ParseChallenge reads "<run>.<number>", both positive. What is none of ours is the zero value.
func ParseChallenge(text string) Challenge {
	run, number, _ := strings.Cut(text, ".")
	c := Challenge{Run: positive(run), Number: positive(number)}
	if c.Run == 0 || c.Number == 0 || c.String() != text {
		return Challenge{}
	}
	return c
}

// String returns "<run>.<number>", and "" for none.
func (c Challenge) String() string {
	if c.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d.%d", c.Run, c.Number)
}

// IsZero is true for no challenge.
func (c Challenge) IsZero() bool { return c == Challenge{} }

// Compare orders by the time at which challenges were written.
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
