// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/trainyard/trainyard/dispatch"
)

func scores() (string, error) {
	rows := [][]string{{"name", "score", "use it to"}}
	for _, score := range dispatch.Scores {
		rows = append(rows, []string{fmt.Sprintf("`%s`", score.Name), score.Counts, score.Use})
	}
	return table(rows), nil
}
