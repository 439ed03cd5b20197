// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Variable is the environment variable with the directory of a release.
const Variable = "TRAINYARD_KUBERNETES"

// versionTimeout is how long a binary may take to say its version, on a machine with other work.
const versionTimeout = 2 * time.Minute

// binary is a binary of a release.
type binary struct {
	name string
	// version are the arguments that make it say its version.
	version []string
	// module is the Go module of test/controlplane that our own control plane has instead.
	module string
}

const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// binaries are sorted by name.
func binaries() []binary {
	return []binary{
		{name: "etcd", version: []string{"--version"}, module: etcdModule},
		{name: "kube-apiserver", version: []string{"--version"}, module: kubernetesModule},
		{name: "kube-controller-manager", version: []string{"--version"}, module: kubernetesModule},
		{name: "kube-scheduler", version: []string{"--version"}, module: kubernetesModule},
		{name: "kubectl", version: []string{"version", "--client"}, module: kubernetesModule},
	}
}

// Release is a directory with the binaries of a Kubernetes release, which have been checked.
type Release struct {
	dir      string
	versions map[string]string // by the binary's name
}

// Path returns the path of a binary: etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubectl.
func (r *Release) Path(name string) string { return filepath.Join(r.dir, name) }

// Version returns the version of a binary, like 1.36.3.
func (r *Release) Version(name string) string { return r.versions[name] }

// Open checks the binaries in a directory: all are there, and each has the minor version that the file goMod requires
// of its module. goMod is the path of test/controlplane/go.mod, or of one of test/controlplane/releases. The error has a
// line for each fault.
func Open(ctx context.Context, dir, goMod string) (*Release, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("%s=%q: want an absolute path, because tests run in different directories", Variable, dir)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s=%q: there is no such directory", Variable, dir)
	}
	required, err := os.ReadFile(goMod)
	if err != nil {
		return nil, fmt.Errorf("read the required version of Kubernetes: %w", err)
	}
	release := &Release{dir: dir, versions: map[string]string{}}
	var missing []string
	var faults []error
	for _, b := range binaries() {
		err := release.check(ctx, b, required)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, b.name)
		} else if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", Variable, err))
		}
	}
	if len(missing) > 0 {
		lack := fmt.Errorf("%s: %s lacks %s", Variable, dir, strings.Join(missing, ", "))
		faults = append([]error{lack}, faults...)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return release, nil
}

// check finds out the version of a binary. The error is fs.ErrNotExist if there is no such file.
func (r *Release) check(ctx context.Context, b binary, goMod []byte) error {
	path := r.Path(b.name)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	required, err := requiredVersion(goMod, b.module)
	if err != nil {
		return err
	}
	found, err := versionOf(ctx, path, b.version)
	if err != nil {
		return err
	}
	if minor(found) != minor(required) {
		return fmt.Errorf("%s has version %s: every %s.x will do, and this repository requires %s", path, found, minor(required), required)
	}
	r.versions[b.name] = found
	return nil
}

// version is a version in the outputs of all binaries and in go.mod.
var version = regexp.MustCompile(`\bv?([0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*)`)

// requiredVersion returns the version of a module that a go.mod requires, without the v.
func requiredVersion(goMod []byte, module string) (string, error) {
	for line := range strings.Lines(string(goMod)) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(words) >= 2 && words[0] == module {
			return strings.TrimPrefix(words[1], "v"), nil
		}
	}
	return "", fmt.Errorf("find the required version: go.mod does not require %s", module)
}

// versionOf asks a binary for its version.
func versionOf(ctx context.Context, path string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, path, args...)
	command.WaitDelay = time.Second // A script's own child may keep the output open.
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w: %s", path, err, strings.TrimSpace(string(output)))
	}
	found := version.FindSubmatch(output)
	if found == nil {
		return "", fmt.Errorf("ask %s for its version: it answers %q", path, strings.TrimSpace(string(output)))
	}
	return string(found[1]), nil
}

// minor is the first two numbers of a version.
func minor(version string) string {
	numbers := strings.SplitN(version, ".", 3)
	return strings.Join(numbers[:2], ".")
}
