// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// TestEndings checks that each outcome has a row, and that the evictions which the API allows have an evictor.
func TestEndings(t *testing.T) {
	var outcomes, evictions []string
	for _, ending := range Endings() {
		outcomes = append(outcomes, string(ending.Outcome))
		if ending.Evictor != "" {
			evictions = append(evictions, string(ending.Outcome))
		}
	}
	allowed := enumOf(t, "dispatch_spec.go", "EvictionReason")
	slices.Sort(allowed)
	slices.Sort(evictions)
	check.Diff(t, allowed, evictions, "reasons of evictions of the API and rows with an evictor differ (-API +rows)")
	check.Diff(t, enumOf(t, "dispatch_status.go", "Outcome"), outcomes, "outcomes of the API and rows differ (-API +rows)")
}

// enumOf returns the values of a type of the API.
func enumOf(t *testing.T, file, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../../api/v1alpha1/" + file)
	check.Must(t, err)
	enum := regexp.MustCompile(`:Enum=(\S+)\ntype ` + name + ` string`).FindSubmatch(text)
	if enum == nil {
		t.Fatalf("%s has no enum of %s", file, name)
	}
	return strings.Split(string(enum[1]), ";")
}
