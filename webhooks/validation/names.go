// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"
)

// listed returns sorted, quoted names. It cuts a long list and says how many names it left out.
func listed(names []string, most int) string {
	if len(names) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(names))
	var quoted []string
	for _, name := range sorted[:min(most, len(sorted))] {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(sorted) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// byPath compares field paths. It compares indexes as numbers.
func byPath(a, b string) int {
	for a != "" && b != "" {
		digitsA, digitsB := leadingDigits(a), leadingDigits(b)
		if digitsA > 0 && digitsB > 0 {
			if digitsA != digitsB {
				return digitsA - digitsB
			}
			if c := strings.Compare(a[:digitsA], b[:digitsB]); c != 0 {
				return c
			}
			a, b = a[digitsA:], b[digitsB:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func leadingDigits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
