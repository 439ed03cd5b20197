// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version says what a binary was built from.
package version

import (
	"runtime"
	"runtime/debug"
)

// String is the version of the module, the revision and the version of Go, as far as the Go toolchain has recorded them.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			version += " (" + setting.Value + ")"
		}
	}
	return version + " " + runtime.Version()
}
