// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of the binary.
package version

import (
	"runtime"
	"runtime/debug"
)

// String returns the module's version, the revision and the version of Go, as far as the binary has them.
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
