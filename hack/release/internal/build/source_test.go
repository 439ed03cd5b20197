// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestSemVer(t *testing.T) {
	cases := map[string]struct{ reason, version, want string }{
		"Tag":     {reason: "A tag is one.", version: "v0.1.0", want: "v0.1.0"},
		"NoV":     {reason: "The v is added.", version: "0.1.0", want: "v0.1.0"},
		"After":   {reason: "A commit after a tag is a pre-release.", version: "v0.1.0-3-g1ca39a", want: "v0.1.0-3-g1ca39a"},
		"Build":   {reason: "Metadata of the build stays.", version: "v1.2.3-rc.1+x", want: "v1.2.3-rc.1+x"},
		"Hash":    {reason: "A hash is none.", version: "1ca39a2ac193-dirty", want: "v0.0.0-g1ca39a2ac193-dirty"},
		"Digits":  {reason: "A hash may look like a number.", version: "123456789012", want: "v0.0.0-g123456789012"},
		"Letters": {reason: "A pre-release cannot have all letters.", version: "nightly_1.2", want: "v0.0.0-gnightly-1-2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := (Source{Version: tc.version}).SemVer(); got != tc.want {
				t.Errorf("%s\nSemVer of %q = %q, want %q", tc.reason, tc.version, got, tc.want)
			}
		})
	}
}

func TestReadSource(t *testing.T) {
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-C", root, "-c", "user.name=n", "-c", "user.email=e"}, args...)...)
		command.Env = append(command.Environ(), "GIT_COMMITTER_DATE=2026-02-03T04:05:06+02:00")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if _, err := ReadSource(t.Context(), root, ""); err == nil || !strings.Contains(err.Error(), "must be a clone") {
		t.Errorf("a folder without git: %v", err)
	}
	run("init", "-q")
	run("commit", "-q", "--allow-empty", "-m", "First")
	run("tag", "v0.3.0")
	source, err := ReadSource(t.Context(), root, "")
	if err != nil {
		t.Fatal(err)
	}
	want := time.Date(2026, 2, 3, 2, 5, 6, 0, time.UTC)
	if source.Version != "v0.3.0" || !source.Time.Equal(want) || source.Dirty() {
		t.Errorf("source is %+v, want v0.3.0 at %s", source, want)
	}
	run("commit", "-q", "--allow-empty", "-m", "Second")
	if source, err = ReadSource(t.Context(), root, ""); err != nil || source.Version != "v0.3.0-1-g"+source.Revision[:12] {
		t.Errorf("after the tag: %+v, %v", source, err)
	}
	if source, err = ReadSource(t.Context(), root, "v9+x"); err != nil || source.Tag() != "v9-x" {
		t.Errorf("a given version: %+v, %v", source, err)
	}
	for _, bad := range []string{"v1 2", "-v1", "v1/2", strings.Repeat("v", 129)} {
		if _, err := ReadSource(t.Context(), root, bad); err == nil || !strings.Contains(err.Error(), "v0.1.0") {
			t.Errorf("ReadSource with version %q: %v", bad, err)
		}
	}
}
