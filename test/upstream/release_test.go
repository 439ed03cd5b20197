// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

const goMod = `module example.com/controlplane

require (
	go.etcd.io/etcd/server/v3 v3.6.8
	k8s.io/kubernetes v1.36.3 // indirect
)

replace k8s.io/api => k8s.io/api v0.36.3
`

// what the binaries of a release that will do answer.
func goodRelease() map[string]string {
	return map[string]string{
		"etcd":                    "etcd Version: 3.6.5\nGit SHA: a061450\nGo Version: go1.24.7\nGo OS/Arch: linux/amd64",
		"kube-apiserver":          "Kubernetes v1.36.0",
		"kube-controller-manager": "Kubernetes v1.36.3",
		"kube-scheduler":          "Kubernetes v1.36.4-rc.0",
		"kubectl":                 "Client Version: v1.36.3\nKustomize Version: v5.8.1",
	}
}

func TestOpen(t *testing.T) {
	tests := map[string]struct {
		reason  string
		change  map[string]string // answers of binaries; empty: the binary is missing
		want    map[string]string // versions
		wantErr []string          // DIR is the directory
	}{
		"AllThere": {
			reason: "every patch of the minor version will do",
			want: map[string]string{
				"etcd": "3.6.5", "kube-apiserver": "1.36.0", "kube-controller-manager": "1.36.3", "kube-scheduler": "1.36.4-rc.0", "kubectl": "1.36.3",
			},
		},
		"DirectoryOfEnvtest": {
			reason:  "all missing files are named at once",
			change:  map[string]string{"kube-scheduler": "", "kube-controller-manager": ""},
			wantErr: []string{"TRAINYARD_KUBERNETES: DIR lacks kube-controller-manager, kube-scheduler"},
		},
		"OtherVersions": {
			reason: "an error names the file, its version, and the versions that will do",
			change: map[string]string{"kube-apiserver": "Kubernetes v1.35.2", "etcd": "etcd Version: 3.5.21", "kubectl": "Client Version: v1.3.6"},
			wantErr: []string{
				"TRAINYARD_KUBERNETES: DIR/etcd has version 3.5.21: every 3.6.x will do, and this repository requires 3.6.8",
				"TRAINYARD_KUBERNETES: DIR/kube-apiserver has version 1.35.2: every 1.36.x will do, and this repository requires 1.36.3",
				"TRAINYARD_KUBERNETES: DIR/kubectl has version 1.3.6: every 1.36.x will do, and this repository requires 1.36.3",
			},
		},
		"MissingAndOther": {
			reason: "one run tells all",
			change: map[string]string{"kubectl": "", "kube-scheduler": "Kubernetes v1.37.0"},
			wantErr: []string{
				"TRAINYARD_KUBERNETES: DIR lacks kubectl",
				"TRAINYARD_KUBERNETES: DIR/kube-scheduler has version 1.37.0: every 1.36.x will do, and this repository requires 1.36.3",
			},
		},
		"NoVersion": {
			reason:  "an answer without a version is quoted",
			change:  map[string]string{"etcd": "hello"},
			wantErr: []string{`TRAINYARD_KUBERNETES: ask DIR/etcd for its version: it answers "hello"`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			answers := goodRelease()
			for binary, answer := range tc.change {
				answers[binary] = answer
			}
			dir := t.TempDir()
			for binary, answer := range answers {
				if answer != "" {
					write(t, filepath.Join(dir, binary), "#!/bin/sh\ncat <<'end'\n"+answer+"\nend\n", 0o700)
				}
			}
			release, err := Open(t.Context(), dir, writeGoMod(t))
			if len(tc.wantErr) > 0 {
				want := strings.ReplaceAll(strings.Join(tc.wantErr, "\n"), "DIR", dir)
				if err == nil || err.Error() != want {
					t.Errorf("%s: got error\n%v\nwant\n%s", tc.reason, err, want)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			check.Diff(t, tc.want, release.versions, fmt.Sprintf("%s: versions", tc.reason))
		})
	}
}

// Scripts may say how they were asked: kubectl has no flag --version.
func TestKubectlIsAskedForItsOwnVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubectl")
	write(t, path, "#!/bin/sh\n[ \"$*\" = 'version --client' ] || exit 3\necho 'Client Version: v1.36.3'\n", 0o700)
	kubectl := binaries()[4]
	if got, err := versionOf(t.Context(), path, kubectl.version); err != nil || got != "1.36.3" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	broken := t.TempDir()
	for name := range goodRelease() {
		write(t, filepath.Join(broken, name), "", 0o600)
	}
	tests := map[string]struct {
		reason string
		dir    string
		want   string
	}{
		"Relative":      {reason: "tests have other working directories", dir: "assets", want: "absolute path"},
		"NoDirectory":   {reason: "a typing error is no directory without binaries", dir: filepath.Join(broken, "none"), want: "no such directory"},
		"NotExecutable": {reason: "a file that cannot run is named", dir: broken, want: "kube-scheduler for its version: fork/exec"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(t.Context(), tc.dir, writeGoMod(t)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// The go.mod of the control plane says which versions will do.
func TestRequiredVersions(t *testing.T) {
	data, err := os.ReadFile("../controlplane/go.mod")
	check.Must(t, err)
	for _, b := range binaries() {
		if got, err := requiredVersion(data, b.module); err != nil || !version.MatchString(got) {
			t.Errorf("%s: go.mod requires %q: %v", b.name, got, err)
		}
	}
}

// The file of another release has the modules of that release.
func TestRequiredVersionsOfReleases(t *testing.T) {
	paths, err := filepath.Glob("../controlplane/releases/*.mod")
	check.Must(t, err)
	check.Equal(t, false, len(paths) == 0, "there are no other releases")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		check.Must(t, err)
		release := strings.TrimSuffix(filepath.Base(path), ".mod")
		got, err := requiredVersion(data, kubernetesModule)
		check.Must(t, err)
		check.Equal(t, release, minor(got), "%s requires Kubernetes %s", path, got)
		_, staging, _ := strings.Cut(release, ".")
		if text := "\tk8s.io/apiserver => k8s.io/apiserver v0." + staging + "."; !strings.Contains(string(data), text) {
			t.Errorf("%s lacks %q", path, text)
		}
		if _, err := requiredVersion(data, etcdModule); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func writeGoMod(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "go.mod")
	write(t, path, goMod, 0o600)
	return path
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	check.Must(t, os.WriteFile(path, []byte(text), mode))
}
