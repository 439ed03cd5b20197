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
