// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of the binary.
//
// Binaries of images and releases have their version from the linker, because they are built without VCS information:
//
//	go build -ldflags '-X github.com/trainyard/trainyard/cmd/internal/version.release=v0.1.0 ...'
package version

import (
	"runtime"
	"runtime/debug"
)

// The linker sets both variables. A binary that go build makes without these flags leaves them empty.
var (
	release  string // What git describe says, or the VERSION that make was given: v0.1.0
	revision string // The commit.
)

// String returns the version, the revision and the version of Go, as far as the binary has them: "v0.1.0 (1ca39a2)
// go1.26.8".
func String() string {
	info, _ := debug.ReadBuildInfo()
	return describe(release, revision, info) + " " + runtime.Version()
}

// describe prefers what the linker has set. It reads the rest from the information that go build puts into a binary;
// nil means that the binary has none.
func describe(release, revision string, info *debug.BuildInfo) string {
	if info != nil {
		if release == "" {
			release = info.Main.Version
		}
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && revision == "" {
				revision = setting.Value
			}
		}
	}
	if release == "" {
		release = "unknown"
	}
	if revision == "" {
		return release
	}
	return release + " (" + revision + ")"
}
