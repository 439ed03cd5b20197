// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"slices"
	"testing"
)

// TestUpstream runs upstream's suites. Each test of a suite is a sub-test.
func TestUpstream(t *testing.T) {
	w := prepare(t)
	for _, suite := range w.suites {
		t.Run(suite, func(t *testing.T) {
			specs := readReport(t, w.run(t, suite))
			results := judge(suite, specs, differences)
			for _, r := range results {
				t.Run(r.test, func(t *testing.T) {
					switch {
					case r.wrong != "":
						t.Error(r.wrong)
					case r.skipped != "":
						t.Skip(r.skipped)
					}
				})
			}
			t.Log(count(results))
		})
	}
	for _, d := range differences {
		if !slices.Contains(w.suites, d.suite) {
			t.Errorf("the list of differences names the suite %q, which upstream does not have", d.suite)
		}
	}
}
