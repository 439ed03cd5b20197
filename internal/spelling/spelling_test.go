// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package spelling

import "testing"

func TestNearest(t *testing.T) {
	steps := []string{"node", "launcher", "dataset-initializer", "model-initializer"}
	cases := map[string]struct {
		reason     string
		name       string
		candidates []string
		want       string
	}{
		"Missing": {reason: "A letter is missing.", name: "nod", candidates: steps, want: "node"},
		"Added":   {reason: "A letter is too much.", name: "nodes", candidates: steps, want: "node"},
		"Other":   {reason: "Two letters are wrong.", name: "lawncher", candidates: steps, want: "launcher"},
		"Case":    {reason: "The case does not count.", name: "LAUNCHER", candidates: steps, want: "launcher"},
		"Long":    {reason: "In a long name more may be wrong.", name: "data-initialiser", candidates: steps, want: "dataset-initializer"},
		"Far":     {reason: "What is not near is not named.", name: "worker", candidates: steps, want: ""},
		"Short":   {reason: "Nothing is near a name that shares no letter with it.", name: "x", candidates: []string{"a", "bc"}, want: ""},
		"First": {
			reason: "Of equally near ones the first wins, in whatever order they come.",
			name:   "nodex", candidates: []string{"nodez", "nodea"}, want: "nodea",
		},
		"Prefix":   {reason: "What begins with the name is near.", name: "data", candidates: steps, want: "dataset-initializer"},
		"NoneThat": {reason: "There may be no names at all.", name: "node", want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Nearest(tc.name, tc.candidates); got != tc.want {
				t.Errorf("%s\nNearest(%q) = %q, want %q", tc.reason, tc.name, got, tc.want)
			}
		})
	}
}

func TestDistanceIsAMetric(t *testing.T) {
	words := []string{"", "a", "node", "nodes", "done", "launcher", "launch", "model-initializer"}
	for _, a := range words {
		if d := distance(a, a); d != 0 {
			t.Errorf("distance(%q, %q) = %d", a, a, d)
		}
		if d := distance(a, ""); d != len(a) {
			t.Errorf("distance(%q, \"\") = %d", a, d)
		}
		for _, b := range words {
			if distance(a, b) != distance(b, a) {
				t.Errorf("distance of %q and %q depends on their order", a, b)
			}
			for _, c := range words {
				if distance(a, c) > distance(a, b)+distance(b, c) {
					t.Errorf("%q is nearer to %q by way of %q", a, c, b)
				}
			}
		}
	}
	if d := distance("kitten", "sitting"); d != 3 {
		t.Errorf("distance of kitten and sitting is %d, want 3", d)
	}
}
