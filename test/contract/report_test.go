// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types" //nolint:depguard // The report is of ginkgo's.
)

// spec is one test of upstream's with its result.
type spec struct {
	name    string
	state   types.SpecState
	failure string // where, and what was found
}

// readReport returns the tests in a report of ginkgo's, in the order of their names.
func readReport(t *testing.T, path string) []spec {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	var reports []types.Report
	must(t, json.Unmarshal(data, &reports))
	var specs []spec
	for _, report := range reports {
		for _, reason := range report.SpecialSuiteFailureReasons {
			t.Errorf("the suite failed as a whole: %s", reason)
		}
		for _, s := range report.SpecReports {
			specs = append(specs, newSpec(s))
		}
	}
	if len(specs) == 0 {
		t.Fatal("the suite has no tests")
	}
	slices.SortStableFunc(specs, func(a, b spec) int { return strings.Compare(a.name, b.name) })
	return specs
}

func newSpec(s types.SpecReport) spec {
	name := s.FullText()
	if !s.LeafNodeType.Is(types.NodeTypeIt) {
		name = s.LeafNodeType.String() + " " + name
	}
	result := spec{name: strings.TrimSpace(name), state: s.State}
	if failure := s.Failure; !failure.IsZero() {
		result.failure = fmt.Sprintf("%s\n%s", failure.Location, firstLines(failure.Message))
	}
	return result
}

// firstLines leaves out everything after the first lines, for example all fields of an error. The log has them.
func firstLines(message string) string {
	const most = 60
	lines := strings.SplitN(message, "\n", most+1)
	if len(lines) > most {
		lines[most] = "..."
	}
	return strings.Join(lines, "\n")
}
