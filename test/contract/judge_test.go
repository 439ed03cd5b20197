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
)

// verdict says how one test counts. Neither text: it passed.
type verdict struct {
	test    string
	skipped string // why it does not count
	wrong   string // why the run fails
}

// judge compares the results of a suite with the list. An entry of the list without a test has a verdict of its own.
func judge(suite string, specs []spec, list []difference) []verdict {
	verdicts := make([]verdict, 0, len(specs))
	for _, s := range specs {
		i := slices.IndexFunc(list, func(d difference) bool { return d.suite == suite && d.test == s.name })
		if i < 0 {
			verdicts = append(verdicts, judgeUnlisted(s))
		} else {
			verdicts = append(verdicts, judgeListed(s, list[i]))
		}
	}
	for _, d := range list {
		if d.suite == suite && !slices.ContainsFunc(specs, func(s spec) bool { return s.name == d.test }) {
			verdicts = append(verdicts, verdict{test: d.test, wrong: "on the list of differences, but upstream has no such test"})
		}
	}
	return verdicts
}

func judgeUnlisted(s spec) verdict {
	v := verdict{test: s.name}
	switch {
	case s.state == types.SpecStatePassed:
	case s.state == types.SpecStatePending:
		v.skipped = "upstream has switched it off"
	case s.failure == "":
		v.wrong = fmt.Sprintf("did not run: %s", s.state)
	default:
		v.wrong = fmt.Sprintf("%s at %s", s.state, s.failure)
	}
	return v
}

func judgeListed(s spec, d difference) verdict {
	v := verdict{test: s.name}
	switch {
	case s.state == types.SpecStatePassed:
		v.wrong = "on the list of differences, but it passes: take it off"
	case s.state == types.SpecStateFailed && strings.Contains(s.failure, d.fails):
		v.skipped = "differs on purpose: " + d.why
	default:
		v.wrong = fmt.Sprintf("on the list of differences, but it does not fail with %q: %s at %s", d.fails, s.state, s.failure)
	}
	return v
}

// count says how many tests there are of each sort.
func count(verdicts []verdict) string {
	var passed, differ, wrong int
	for _, v := range verdicts {
		switch {
		case v.wrong != "":
			wrong++
		case v.skipped != "":
			differ++
		default:
			passed++
		}
	}
	return fmt.Sprintf("%d tests of upstream's: %d passed, %d skipped, %d failed", len(verdicts), passed, differ, wrong)
}

func TestJudge(t *testing.T) {
	list := []difference{{suite: "controller", test: "builds", fails: "is forbidden", why: "the reason"}}
	cases := map[string]struct {
		reason string
		suite  string
		specs  []spec
		want   []verdict
	}{
		"Passed": {
			reason: "A test that passes counts as passed, and one of that name in another suite is not the one on the list.",
			suite:  "webhooks",
			specs:  []spec{{name: "builds", state: types.SpecStatePassed}},
			want:   []verdict{{test: "builds"}},
		},
		"Failed": {
			reason: "A failure tells where and what.",
			suite:  "webhooks",
			specs:  []spec{{name: "refuses", state: types.SpecStateFailed, failure: "a.go:1\nwords"}},
			want:   []verdict{{test: "refuses", wrong: "failed at a.go:1\nwords"}},
		},
		"NotRun": {
			reason: "A test that was left out is no success.",
			suite:  "webhooks",
			specs:  []spec{{name: "refuses", state: types.SpecStateSkipped}},
			want:   []verdict{{test: "refuses", wrong: "did not run: skipped"}},
		},
		"Pending": {
			reason: "What upstream does not run, we cannot fail.",
			suite:  "webhooks",
			specs:  []spec{{name: "refuses", state: types.SpecStatePending}},
			want:   []verdict{{test: "refuses", skipped: "upstream has switched it off"}},
		},
		"ListedAndFailsSo": {
			reason: "It fails as the list says.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStateFailed, failure: "a.go:1\nit is forbidden"}},
			want:   []verdict{{test: "builds", skipped: "differs on purpose: the reason"}},
		},
		"ListedAndFailsOtherwise": {
			reason: "An entry of the list is no licence to fail in any way.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStateFailed, failure: "a.go:1\nno answer"}},
			want: []verdict{{test: "builds",
				wrong: `on the list of differences, but it does not fail with "is forbidden": failed at ` + "a.go:1\nno answer"}},
		},
		"ListedAndPanics": {
			reason: "A panic is never on purpose.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStatePanicked, failure: "a.go:1\nis forbidden"}},
			want: []verdict{{test: "builds",
				wrong: `on the list of differences, but it does not fail with "is forbidden": panicked at ` + "a.go:1\nis forbidden"}},
		},
		"ListedAndPasses": {
			reason: "The list does not keep what is over.",
			suite:  "controller",
			specs:  []spec{{name: "builds", state: types.SpecStatePassed}},
			want:   []verdict{{test: "builds", wrong: "on the list of differences, but it passes: take it off"}},
		},
		"ListedAndUnknown": {
			reason: "A renamed test is noticed.",
			suite:  "controller",
			specs:  []spec{{name: "constructs", state: types.SpecStatePassed}},
			want: []verdict{{test: "constructs"},
				{test: "builds", wrong: "on the list of differences, but upstream has no such test"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.suite, tc.specs, list)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
