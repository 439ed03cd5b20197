// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"fmt"
	"strings"
)

// didYouMean is a part of a sentence that names the nearest of the names, or empty if none is near.
func didYouMean(wrong string, names []string) string {
	best, distance := "", max(2, len(wrong)/3)+1
	for _, name := range names {
		d := editDistance(strings.ToLower(wrong), strings.ToLower(name))
		if strings.HasPrefix(name, wrong) {
			d = 1
		}
		if d < distance {
			best, distance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// editDistance is how many letters have to be changed, added or taken away to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
