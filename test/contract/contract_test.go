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
			verdicts := judge(suite, specs, differences)
			for _, v := range verdicts {
				t.Run(v.test, func(t *testing.T) {
					switch {
					case v.wrong != "":
						t.Error(v.wrong)
					case v.skipped != "":
						t.Skip(v.skipped)
					}
				})
			}
			t.Log(count(verdicts))
		})
	}
	for _, d := range differences {
		if !slices.Contains(w.suites, d.suite) {
			t.Errorf("the list of differences names the suite %q, which upstream does not have", d.suite)
		}
	}
}
