// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2/types" //nolint:depguard // The report is of ginkgo's.

	"github.com/trainyard/trainyard/test/check"
)

// result says how one test counts. Neither text: it passed.
type result struct {
	test    string
	skipped string // why it does not count
	wrong   string // why the run fails
}

// judge compares the results of a suite with the list. An entry of the list without a test has a result of its own.
func judge(suite string, specs []spec, list []difference) []result {
	results := make([]result, 0, len(specs))
	for _, s := range specs {
		i := slices.IndexFunc(list, func(d difference) bool { return d.suite == suite && d.test == s.name })
		if i < 0 {
			results = append(results, judgeUnlisted(s))
		} else {
			results = append(results, judgeListed(s, list[i]))
		}
	}
	for _, d := range list {
		if d.suite == suite && !slices.ContainsFunc(specs, func(s spec) bool { return s.name == d.test }) {
			results = append(results, result{test: d.test, wrong: "on the list of differences, but upstream has no such test"})
		}
	}
	return results
}

func judgeUnlisted(s spec) result {
	r := result{test: s.name}
	switch {
	case s.state == types.SpecStatePassed:
	case s.state == types.SpecStatePending:
		r.skipped = "upstream has switched it off"
	case s.failure == "":
		r.wrong = fmt.Sprintf("did not run: %s", s.state)
	default:
		r.wrong = fmt.Sprintf("%s at %s", s.state, s.failure)
	}
	return r
}

func judgeListed(s spec, d difference) result {
	r := result{test: s.name}
	switch {
	case s.state == types.SpecStatePassed:
		r.wrong = "on the list of differences, but it passes: take it off"
	case s.state == types.SpecStateFailed && strings.Contains(s.failure, d.fails):
		r.skipped = "differs on purpose: " + d.why
	default:
		r.wrong = fmt.Sprintf("on the list of differences, but it does not fail with %q: %s at %s", d.fails, s.state, s.failure)
	}
	return r
}

// count says how many tests there are of each sort.
func count(results []result) string {
	var passed, differ, wrong int
	for _, r := range results {
		switch {
		case r.wrong != "":
			wrong++
		case r.skipped != "":
			differ++
		default:
			passed++
		}
	}
	return fmt.Sprintf("%d tests of upstream's: %d passed, %d skipped, %d failed", len(results), passed, differ, wrong)
}

func TestJudge(t *testing.T) {
	list := []difference{{suite: "controller", test: "builds", fails: "is forbidden", why: "the reason"}}
	cases := map[string]struct {
		reason string
		suite  string
		specs  []spec
		want   []result
	}{
		"Passed": {
			reason: "A test that passes counts as passed, and one of that name in another suite is not the one on the list.",
			suite:  "webhooks",
			specs:  []spec{{name: "builds", state: types.SpecStatePassed}},
			want:   []result{{test: "builds"}},
		},
		"Failed": {
			reason: "A failure tells where and what.",
			suite:  "webhooks",
			specs:  []spec{{name: "refuses", state: types.SpecStateFailed, failure: "a.go:1\nwords"}},
			want:   []result{{test: "refuses", wrong: "failed at a.go:1\nwords"}},
		},
		"NotRun": {
			reason: "A test that was left out is no success.",
			suite:  "webhooks",
			specs:  []spec{{name: "refuses", state: types.SpecStateSkipped}},
			want:   []result{{test: "refuses", wrong: "did not run: skipped"}},
		},
		"Pending": {
			reason: "What upstream does not run, we cannot fail.",
			suite:  "webhooks",
			specs:  []spec{{name: "refuses", state: types.SpecStatePending}},
			want:   []result{{test: "refuses", skipped: "upstream has switched it off"}},
		},
		"ListedAndFailsSo": {
			reason: "It fails as the list says.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStateFailed, failure: "a.go:1\nit is forbidden"}},
			want:   []result{{test: "builds", skipped: "differs on purpose: the reason"}},
		},
		"ListedAndFailsOtherwise": {
			reason: "An entry of the list is no licence to fail in any way.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStateFailed, failure: "a.go:1\nno answer"}},
			want: []result{{test: "builds",
				wrong: `on the list of differences, but it does not fail with "is forbidden": failed at ` + "a.go:1\nno answer"}},
		},
		"ListedAndPanics": {
			reason: "A panic is never on purpose.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStatePanicked, failure: "a.go:1\nis forbidden"}},
			want: []result{{test: "builds",
				wrong: `on the list of differences, but it does not fail with "is forbidden": panicked at ` + "a.go:1\nis forbidden"}},
		},
		"ListedAndPasses": {
			reason: "The list does not keep what is over.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStatePassed}},
			want:   []result{{test: "builds", wrong: "on the list of differences, but it passes: take it off"}},
		},
		"ListedAndUnknown": {
			reason: "A renamed test is noticed.",
			suite:  "controller",
			specs:  []spec{{name: "constructs", state: types.SpecStatePassed}},
			want: []result{{test: "constructs"},
				{test: "builds", wrong: "on the list of differences, but upstream has no such test"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.suite, tc.specs, list)
			check.Diff(t, tc.want, got, tc.reason, cmp.AllowUnexported(result{}))
		})
	}
}
