// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"fmt"

	"github.com/trainyard/trainyard/internal/spelling"
)

// didYouMean is a part of a sentence that names the nearest of the names, or empty if none is near.
func didYouMean(wrong string, names []string) string {
	if best := spelling.Nearest(wrong, names); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}
