// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// small is a repository with one program, which prints what the linker has set.
var small = map[string]string{
	"go.mod": "module github.com/trainyard/trainyard\n\ngo 1.26.0\n",
	"cmd/internal/version/version.go": `package version

var release, revision string

func String() string { return release + " " + revision }
`,
	"cmd/small/main.go": `package main

import (
	"fmt"

	"github.com/trainyard/trainyard/cmd/internal/version"
)

func main() { fmt.Println(version.String()) }
`,
}

func TestCompile(t *testing.T) {
	program := Program{Name: "tiny", Package: "./cmd/small"} // The binary has another name than the package.
	native := Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	var programs [][]byte
	for _, flags := range []string{"", "-race -gcflags=-N"} { // The user's flags do not count, nor does the folder.
		t.Setenv("GOFLAGS", flags)
		root := t.TempDir()
		for path, text := range small {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		source := Source{Root: root, Version: "v0.1.0", Revision: "1ca39a2"}
		binaries, err := Compile(t.Context(), source, []Program{program}, native, filepath.Join(root, "out"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binaries[0].Path).CombinedOutput()
		if err != nil || string(out) != "v0.1.0 1ca39a2\n" {
			t.Errorf("the program prints %q, %v; want version and revision", out, err)
		}
		data, err := os.ReadFile(binaries[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, data)
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Error("the same source in another folder gives another binary")
	}
	missing := Program{Name: "none", Package: "./cmd/none"}
	_, err := Compile(t.Context(), Source{Root: t.TempDir()}, []Program{missing}, native, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "build none for "+native.String()) {
		t.Errorf("a program that does not exist: %v", err)
	}
}

func TestParsePlatform(t *testing.T) {
	if p, err := ParsePlatform("linux/arm64"); err != nil || p != (Platform{OS: "linux", Arch: "arm64"}) {
		t.Errorf("platform is %v, %v", p, err)
	}
	for _, bad := range []string{"", "linux", "linux/", "/arm64", "linux/arm/v7"} {
		if _, err := ParsePlatform(bad); err == nil || !strings.Contains(err.Error(), "want OS/ARCHITECTURE") {
			t.Errorf("ParsePlatform(%q): %v", bad, err)
		}
	}
}

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
