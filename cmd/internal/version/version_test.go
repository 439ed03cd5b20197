// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func TestDescribe(t *testing.T) {
	installed := &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}}
	built := &debug.BuildInfo{
		Main:     debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "vcs.revision", Value: "2b0d"}},
	}
	cases := map[string]struct {
		reason            string
		release, revision string
		info              *debug.BuildInfo
		want              string
	}{
		"Release":   {reason: "The linker's values win.", release: "v0.1.0", revision: "1ca3", info: built, want: "v0.1.0 (1ca3)"},
		"Installed": {reason: "go install knows the version of the module.", info: installed, want: "v0.2.0"},
		"Built":     {reason: "go build in a clone knows the commit.", info: built, want: "(devel) (2b0d)"},
		"Mixed":     {reason: "Each value counts by itself.", release: "v0.1.0", info: built, want: "v0.1.0 (2b0d)"},
		"Nothing":   {reason: "A binary may have no information.", want: "unknown"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, describe(tc.release, tc.revision, tc.info),
				"%s: describe(%q, %q)", tc.reason, tc.release, tc.revision)
		})
	}
}
