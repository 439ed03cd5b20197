// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

const root = "../../.."

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// tests are the names of all tests below a directory, each with the directory of its package.
func tests(t *testing.T, below string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(below, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range testFunc.FindAllStringSubmatch(string(source), -1) {
			found[match[1]] = filepath.Dir(path)
		}
		return err
	})
	check.Must(t, err)
	return found
}

// Every edit finds its place in the product, and every test that is to see it exists where it is said to be.
func TestEditsApply(t *testing.T) {
	there, names := tests(t, ".."), map[string]bool{}
	for _, p := range promises {
		if names[p.name] {
			t.Errorf("two promises are called %s", p.name)
		}
		names[p.name] = true
		sources := map[string]string{}
		for _, e := range p.edits {
			if sources[e.file] == "" {
				source, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					t.Fatalf("%s: %v", p.name, err)
				}
				sources[e.file] = string(source)
			}
			edited, err := e.apply(sources[e.file])
			check.Equal(t, nil, err, "%s", p.name)
			sources[e.file] = edited
		}
		if len(p.edits) == 0 || len(p.seenBy) == 0 {
			t.Errorf("%s breaks nothing, or nothing sees it", p.name)
		}
		for _, test := range p.seenBy {
			if dir := there[test]; filepath.Clean(dir) != filepath.Join("..", p.in) {
				t.Errorf("%s is to be seen by %s in %s, which is in %q", p.name, test, p.in, dir)
			}
		}
	}
}

// ofFault are the names of tests of faults.
var ofFault = regexp.MustCompile("^Test(Fault|Crashes)[A-Z]")

// named is a test in the last column of a table: `TestX` of the fault tests, `package.TestX` of another package,
// `TestX...` for several.
var named = regexp.MustCompile("`(?:([\\w/-]+)\\.)?(Test\\w+)(\\.\\.\\.)?`")

// Each row of the tables of faults names tests that exist, and each test of a fault has a row.
func TestFailuresNameTheirTests(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(root, "docs", "failures.md"))
	check.Must(t, err)
	there, inRow := tests(t, ".."), map[string]bool{}
	table := false
	for line := range strings.Lines(string(document)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			table = false
			continue
		case strings.TrimSpace(cells[len(cells)-1]) == "test":
			table = true
			continue
		case !table || strings.HasPrefix(line, "|---"):
			continue
		}
		found := named.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(found) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, match := range found {
			candidates := there
			if match[1] != "" {
				candidates = tests(t, filepath.Join(root, match[1]))
			}
			exists := false
			for name := range candidates {
				if name == match[2] || match[3] != "" && strings.HasPrefix(name, match[2]) {
					exists, inRow[name] = true, true
				}
			}
			if !exists {
				t.Errorf("there is no test %s: %s", match[0], line)
			}
		}
	}
	for name := range there {
		if ofFault.MatchString(name) && !inRow[name] {
			t.Errorf("%s has no row in docs/failures.md", name)
		}
	}
}
