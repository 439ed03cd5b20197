// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"math"
	"testing"
)

// TestGrowth: growth separates what each finished job leaves behind from what the jobs on the hub take.
func TestGrowth(t *testing.T) {
	cases := map[string]struct {
		reason   string
		there    func(level int) float64
		perJob   float64
		adjusted float64
	}{
		"Level": {
			reason: "The number of jobs on the hub stays.", there: func(int) float64 { return 60 }, perJob: 3, adjusted: 3,
		},
		"Faster": {
			reason: "It rises by one with each level, in which ten jobs end: a job on the hub takes 100.",
			there:  func(level int) float64 { return float64(level + level%2) }, perJob: 13, adjusted: 3,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := &Expiry{}
			for i := range 40 {
				jobs, there := 10*i, tc.there(i)
				e.Levels = append(e.Levels, Level{
					Jobs: jobs, Figures: map[string]float64{TrainJobs: there, ManagerHeap: 1000 + 100*there + 3*float64(jobs)},
				})
			}
			got, ok := e.Growth(ManagerHeap)
			if !ok || math.Abs(got.PerJob-tc.perJob) > 1e-6 || math.Abs(got.Adjusted-tc.adjusted) > 1e-6 {
				t.Errorf("%s\ngrowth %.6f, adjusted %.6f, %v, want %v and %v", tc.reason, got.PerJob, got.Adjusted, ok, tc.perJob, tc.adjusted)
			}
			e.Levels = e.Levels[:3]
			if _, ok := e.Growth(ManagerHeap); ok {
				t.Error("three levels are too few to tell")
			}
		})
	}
}
