// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package attempts

import "math"

// Limit is the last attempt that a job can have. A job that has had it is not placed any more.
const Limit = math.MaxInt32

// After is the attempt that follows, or Limit if none does.
func After(attempt int32) int32 {
	if attempt >= Limit {
		return Limit
	}
	return attempt + 1
}
