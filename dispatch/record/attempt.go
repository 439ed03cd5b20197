// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "math"

// LastAttempt is the highest attempt that a job can have. A job that has had it is not placed any more.
const LastAttempt = math.MaxInt32

// NextAttempt is the attempt that follows, or LastAttempt if none does.
func NextAttempt(attempt int32) int32 {
	if attempt >= LastAttempt {
		return LastAttempt
	}
	return attempt + 1
}
