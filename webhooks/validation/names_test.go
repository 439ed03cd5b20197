// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func TestPathsAreSortedByNumber(t *testing.T) {
	want := []string{
		"metadata.name", "spec.runtimePatches", "spec.runtimePatches[1].manager", "spec.runtimePatches[2].manager",
		"spec.runtimePatches[2].trainingRuntimeSpec", "spec.runtimePatches[10].manager", "spec.runtimeRef.name",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, byPath)
	check.Diff(t, want, got, "order of paths")
}

func TestListed(t *testing.T) {
	for want, names := range map[string][]string{
		"none":                   nil,
		`"a", "b"`:               {"b", "a"},
		`"a", "b" and 1 more`:    {"c", "b", "a"},
		`"a10", "a2" and 1 more`: {"a2", "b", "a10"},
	} {
		check.Equal(t, want, listed(names, 2), "listed(%q)", names)
	}
}
