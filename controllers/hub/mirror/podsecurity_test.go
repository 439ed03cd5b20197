// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"strings"
	"testing"
)

// TestLaxerThan: what is compared are levels and versions, as API servers read them.
func TestLaxerThan(t *testing.T) {
	enforce := func(level, version string) map[string]string {
		labels := map[string]string{"app": "x"}
		if level != "" {
			labels[labelEnforce] = level
		}
		if version != "" {
			labels[labelEnforceVersion] = version
		}
		return labels
	}
	for name, tc := range map[string]struct {
		reason      string
		hub, worker map[string]string
		// words of the difference. Nil: there is none.
		words []string
	}{
		"NoClaim":    {reason: "the hub leaves it to its API server", worker: enforce("privileged", "")},
		"Privileged": {reason: "nothing is laxer", hub: enforce("privileged", "")},
		"Equal":      {reason: "it is the same", hub: enforce("restricted", "v1.30"), worker: enforce("restricted", "v1.30")},
		"Stricter":   {reason: "less is allowed", hub: enforce("baseline", ""), worker: enforce("restricted", "v1.20")},
		"Missing":    {reason: "nobody sees the default", hub: enforce("baseline", ""), words: []string{labelEnforce, "no label", `"baseline"`}},
		"Laxer":      {reason: "more is allowed", hub: enforce("restricted", ""), worker: enforce("baseline", ""), words: []string{`is "baseline"`, `"restricted"`}},
		"Lax":        {reason: "all is allowed", hub: enforce("baseline", ""), worker: enforce("privileged", ""), words: []string{`is "privileged"`}},
		"Unknown":    {reason: "it counts as restricted", hub: enforce("restricted", ""), worker: enforce("strict", "")},
		"UnknownOnHub": {
			reason: "it counts as restricted", hub: enforce("strict", ""), worker: enforce("baseline", ""), words: []string{`is "baseline"`, `"strict"`},
		},
		"Older": {
			reason: "later versions forbid more", hub: enforce("restricted", "v1.30"), worker: enforce("restricted", "v1.29"),
			words: []string{labelEnforceVersion, `"v1.29"`, `"v1.30"`},
		},
		"OlderThanLatest": {
			reason: "none is the latest", hub: enforce("restricted", ""), worker: enforce("restricted", "v1.29"),
			words: []string{labelEnforceVersion, `"v1.29"`, `"latest"`},
		},
		"Newer":         {reason: "it forbids more", hub: enforce("restricted", "v1.9"), worker: enforce("restricted", "v1.30")},
		"Latest":        {reason: "it forbids more", hub: enforce("restricted", "v1.30"), worker: enforce("restricted", "latest")},
		"LatestByError": {reason: "API servers take it for the latest", hub: enforce("restricted", "v1.30"), worker: enforce("restricted", "new")},
	} {
		t.Run(name, func(t *testing.T) {
			got := laxerThan(tc.hub, tc.worker)
			if (got != "") != (tc.words != nil) {
				t.Errorf("laxerThan() = %q: %s", got, tc.reason)
			}
			for _, word := range tc.words {
				if !strings.Contains(got, word) {
					t.Errorf("laxerThan() = %q, want %q in it", got, word)
				}
			}
		})
	}
}
