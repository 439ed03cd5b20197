// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// JSON writes all runs.
func JSON(out io.Writer, runs []Summary) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(runs)
}

// CSV writes one line for each run and size of jobs, and one for all sizes, named "all".
func CSV(out io.Writer, runs []Summary) error {
	w := csv.NewWriter(out)
	header := []string{
		"system", "seed", "jobs of", "jobs", "mean_wait_s", "p50_wait_s", "p95_wait_s", "p99_wait_s",
		"utilisation", "held", "fragmentation", "preemptions", "lost", "unfinished",
	}
	if err := w.Write(header); err != nil {
		return err
	}
	for i := range runs {
		s := &runs[i]
		parts := append([]Part{{Name: "all", Wait: s.Wait}}, s.Sizes...)
		for _, p := range append(parts, s.Priorities...) {
			line := []string{s.System, fmt.Sprint(s.Seed), p.Name, strconv.Itoa(p.Jobs)}
			for _, v := range []float64{p.Mean, p.P50, p.P95, p.P99, s.Utilisation, s.Held, s.Fragmentation} {
				line = append(line, strconv.FormatFloat(v, 'f', 4, 64))
			}
			line = append(line, strconv.Itoa(s.Preemptions), strconv.FormatFloat(s.Lost, 'f', 4, 64), strconv.Itoa(s.Unfinished))
			if err := w.Write(line); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}
