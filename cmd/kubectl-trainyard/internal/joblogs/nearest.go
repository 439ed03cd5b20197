// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"fmt"

	"github.com/trainyard/trainyard/internal/spelling"
)

// didYouMean returns a part of a sentence with the most similar name, or "" if no name is similar.
func didYouMean(wrong string, names []string) string {
	if best := spelling.Nearest(wrong, names); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}
