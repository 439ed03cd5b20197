// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/upstream"
)

func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	release := fakeRelease(t, dir, "1.36.0")
	tests := map[string]struct {
		reason   string
		programs programs
		path     string
		args     []string
		openAPI  []string
	}{
		"Ours": {
			reason:   "one binary is all parts",
			programs: programs{ours: "/bin/controlplane"},
			path:     "/bin/controlplane", args: []string{"kube-scheduler", "--flag"}, openAPI: []string{"--openapi=false"},
		},
		"Release": {
			reason:   "each part has a binary, and none has our own flags",
			programs: programs{release: release},
			path:     filepath.Join(dir, "kube-scheduler"), args: []string{"--flag"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path, args := tc.programs.command("kube-scheduler", []string{"--flag"})
			if path != tc.path {
				t.Errorf("%s: path %s, want %s", tc.reason, path, tc.path)
			}
			check.Diff(t, tc.args, args, fmt.Sprintf("%s: arguments", tc.reason))
			check.Diff(t, tc.openAPI, tc.programs.apiServerArgs(Options{}),
				fmt.Sprintf("%s: arguments of the API server only", tc.reason))
		})
	}
}

// Clusters of one release must not begin with the baseline of another.
func TestReleasesHaveDifferentBaselines(t *testing.T) {
	var texts [3]bytes.Buffer
	for i, version := range []string{"1.36.0", "1.36.0", "1.36.1"} {
		p := programs{release: fakeRelease(t, t.TempDir(), version)}
		check.Must(t, p.identify(&texts[i]))
	}
	if texts[0].String() != texts[1].String() {
		t.Errorf("two copies of a release differ: %q and %q", &texts[0], &texts[1])
	}
	if texts[0].String() == texts[2].String() {
		t.Errorf("two releases are the same: %q", &texts[0])
	}
}

// fakeRelease makes scripts that say nothing but their version, which is in another file.
func fakeRelease(t *testing.T, dir, version string) *upstream.Release {
	t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\ncat \"$0.version\"\n"), 0o700), os.WriteFile(path+".version", []byte(version), 0o600))
		check.Must(t, err)
	}
	goMod := filepath.Join(t.TempDir(), "go.mod")
	check.Must(t, os.WriteFile(goMod, []byte("require go.etcd.io/etcd/server/v3 v1.36.3\nrequire k8s.io/kubernetes v1.36.3\n"), 0o600))
	release, err := upstream.Open(t.Context(), dir, goMod)
	check.Must(t, err)
	return release
}
