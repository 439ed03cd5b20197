// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spelling finds the name that somebody may have meant, for messages that ask "did you mean". Its tests check
// the words and names of the code, and the files, functions and metrics that documents name.
package spelling

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the candidate that differs least from a name, by the number of missing, added and wrong letters. A
// candidate is near if at most two letters, or a third of the name, differ, or if it begins with the name. Of equally
// near candidates the first in order wins. The case of letters does not count. Empty: none is near.
func Nearest(name string, candidates []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, candidate := range slices.Sorted(slices.Values(candidates)) {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if name != "" && strings.HasPrefix(candidate, name) {
			d = 1
		}
		if d < least && d < len(candidate) {
			best, least = candidate, d
		}
	}
	return best
}

// DidYouMean returns the end of a message with the nearest candidate, or "" if none is near.
func DidYouMean(name string, candidates []string) string {
	if best := Nearest(name, candidates); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
