// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLine(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	equal := map[string]int64{"a": 1000, "b": 1000, "c": 1000, "d": 1000}
	tests := map[string]struct {
		reason  string
		lines   []string // a second apart, the first after ten seconds
		sources map[string]int64
		atOnce  int // packages that are compiled at a time
		now     int
		want    string
	}{
		"Nothing":   {reason: "go build reads packages first", now: 5, want: "x: looking for what to compile, 0:05 passed"},
		"Downloads": {reason: "modules come before packages", lines: []string{"go: downloading k8s.io/api v0.36.3"}, now: 75, want: "x: 1 Go modules downloaded, 1:15 passed"},
		"NoTotal":   {reason: "the total comes later", lines: []string{"a", "b"}, now: 20, want: "x: package 2, 0:20 passed"},
		"Half": {
			reason: "the time before the first package is not a measure", lines: []string{"a", "b"}, sources: equal, now: 50,
			want: "x: 2 of 4 packages, 0:50 passed, about 0:40 left",
		},
		"LargeLast": {
			reason: "a package with three times as much to do takes three times as long", lines: []string{"a"},
			sources: map[string]int64{"a": 0, "b": 2 * overhead}, now: 40, want: "x: 1 of 2 packages, 0:40 passed, about 1:30 left",
		},
		"UnderWay": {
			reason: "what has only begun is no measure of the time that it takes", lines: []string{"a", "b", "c"}, sources: equal,
			atOnce: 2, now: 40, want: "x: 3 of 4 packages, 0:40 passed, about 1:30 left",
		},
		"OnlyUnderWay": {
			reason: "nobody can know before a package is compiled", lines: []string{"a", "b"}, sources: equal,
			atOnce: 2, now: 40, want: "x: 2 of 4 packages, 0:40 passed",
		},
		"TooSoon": {
			reason: "nobody can know after one percent", lines: []string{"a"},
			sources: map[string]int64{"a": 0, "b": 99 * overhead}, now: 40, want: "x: 1 of 2 packages, 0:40 passed",
		},
		"BeforeTheCount": {
			reason: "a package that was compiled before the count is one of the total", lines: []string{"early", "a"}, sources: equal, now: 10,
			want: "x: 2 of 5 packages, 0:10 passed, about 0:10 left",
		},
		"All":      {reason: "the linker has no progress", lines: []string{"a", "b", "c", "d"}, sources: equal, now: 90, want: "x: 4 of 4 packages, linking, 1:30 passed"},
		"Programs": {reason: "a program is linked, which takes longer than to compile it", lines: []string{"cmd"}, sources: map[string]int64{}, now: 90, want: "x: linking, 1:30 passed"},
		"Error":    {reason: "an error is no package", lines: []string{"# example.com/a", "./a.go:1:1: undefined: b"}, now: 90, want: "x: looking for what to compile, 1:30 passed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newProgress("x", start, tc.atOnce)
			for i, line := range tc.lines {
				p.read(line, at(10+i))
			}
			if tc.sources != nil {
				p.expect(&total{sources: maps.Clone(tc.sources), programs: map[string]bool{"cmd": true}})
			}
			if got := p.line(at(tc.now)); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "0:10", 44 * time.Second: "0:40", 100 * time.Second: "1:30", 4 * time.Minute: "4:00", 400 * time.Second: "7:00",
	} {
		if got := clock(round(d)); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	got := parse([]string{"-C", "dir", "-p", "2", "-ldflags", "-s -w", "-o", "bin/", "./cmd/..."})
	want := arguments{dir: "dir", output: []string{"-o", "bin/"}, shared: []string{"-p", "2", "-ldflags", "-s -w", "./cmd/..."}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(arguments{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A package is stale until it is in Go's cache, and has the size of its source.
func TestBuild(t *testing.T) {
	t.Setenv("GOCACHE", t.TempDir())
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	source := "package one // without imports, so that nothing else is compiled\n"
	for name, text := range map[string]string{"go.mod": "module example.com\n\ngo 1.24\n", "one/one.go": source, "two/two.go": "package two\n\nimport _ \"example.com/one\"\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := parse([]string{"-C", dir, "./..."})
	before := stale(t.Context(), a)
	if _, ok := before.sources["example.com/two"]; !ok || before.sources["example.com/one"] != int64(len(source)) {
		t.Errorf("before the build: stale are %v", before.sources)
	}
	var out bytes.Buffer
	if err := build(t.Context(), "x", a, &screen{out: &out, interval: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "package") }) {
		t.Errorf("the build shows nothing of what it compiles:\n%s", &out)
	}
	if after := stale(t.Context(), a); len(after.sources) > 0 {
		t.Errorf("after the build: stale are %v", after.sources)
	}
	if err := build(t.Context(), "x", parse([]string{"-C", dir, "./none"}), &screen{out: &out, interval: time.Hour}); err == nil {
		t.Error("a build that fails has no error")
	}
}

func TestScreen(t *testing.T) {
	tests := map[string]struct {
		reason   string
		terminal bool
		want     string
	}{
		"Terminal": {reason: "a line replaces the one before, and the last one goes", terminal: true, want: "\r\x1b[K  one\r\x1b[K  two\r\x1b[K"},
		"Log":      {reason: "a log has all lines, and nothing else", want: "  one\n  two\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s := &screen{out: &out, terminal: tc.terminal}
			s.show("one")
			s.show("two")
			s.clear()
			if got := out.String(); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
