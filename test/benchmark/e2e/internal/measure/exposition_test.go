// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func TestExposition(t *testing.T) {
	e, err := ParseExposition([]byte(`# HELP jobs Jobs by {cluster}.
# TYPE jobs gauge
jobs{cluster="a",why="no } room"} 2
jobs{cluster="b"} 3.5 1700000000000

size_bytes 1.5e+06
`))
	check.Must(t, err)
	if e.Series != 3 {
		t.Errorf("%d series, want 3: comments and empty lines are none", e.Series)
	}
	for name, want := range map[string]float64{"jobs": 5.5, "size_bytes": 1.5e6} {
		if got, err := e.Sum(name); err != nil || got != want {
			t.Errorf("Sum(%q) = %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := e.Sum("job"); err == nil {
		t.Error("a metric that does not exist has a sum")
	}
	if _, err := ParseExposition([]byte("jobs{cluster=\"a\"} many\n")); err == nil {
		t.Error("a value that is no number is read")
	}
}
