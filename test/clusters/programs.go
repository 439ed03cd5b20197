// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/trainyard/trainyard/test/upstream"
)

// programs are the binaries of a control plane.
type programs struct {
	// ours is all parts in one, and takes the name of the part as its first argument. Empty: release has the parts.
	ours    string
	release *upstream.Release
}

// DefaultRelease is the Kubernetes release of test/controlplane/go.mod. Product and control plane then share the compiled
// libraries, so nobody builds Kubernetes twice. The other releases are in test/controlplane/releases.
const DefaultRelease = "1.36"

// inDirectory is where a directory of programs has those of a release.
func inDirectory(dir, release string) string {
	if release == DefaultRelease {
		return dir
	}
	return filepath.Join(dir, release)
}

// opened has a function for each release, see openRelease.
var opened sync.Map

// openRelease checks the binaries of a release in the directory that $TRAINYARD_KUBERNETES names, once for all clusters
// of this process: it starts each binary to ask for the version. It returns nil if the variable is not set.
func openRelease(name string) (*upstream.Release, error) {
	open, _ := opened.LoadOrStore(name, sync.OnceValues(func() (*upstream.Release, error) {
		dir := os.Getenv(upstream.Variable)
		if dir == "" {
			return nil, nil
		}
		root, err := repositoryRoot()
		if err != nil {
			return nil, fmt.Errorf("check the release in %s: %w", dir, err)
		}
		return upstream.Open(context.Background(), inDirectory(dir, name), modFile(root, name))
	}))
	return open.(func() (*upstream.Release, error))()
}

// modFile is the path of the file that says of which modules the control plane of a release is made.
func modFile(root, release string) string {
	dir := filepath.Join(root, "test", "controlplane")
	if release == DefaultRelease {
		return filepath.Join(dir, "go.mod")
	}
	return filepath.Join(dir, "releases", release+".mod")
}

// findPrograms returns the binaries of a release that somebody else has built, or what hack/build-controlplane.sh has
// built in a directory.
func findPrograms(binDir, name string) (programs, error) {
	release, err := openRelease(name)
	if err != nil {
		return programs{}, err
	}
	if release != nil {
		return programs{release: release}, nil
	}
	if name == DefaultRelease {
		ours, err := binary(binDir, "controlplane")
		return programs{ours: ours}, err
	}
	ours, err := builtBy("hack/build-controlplane.sh "+name, filepath.Join(inDirectory(binDir, name), "controlplane"))
	return programs{ours: ours}, err
}

// command returns the path of the program of a part, and its arguments.
func (p programs) command(part string, args []string) (path string, all []string) {
	if p.release != nil {
		return p.release.Path(part), args
	}
	return p.ours, append([]string{part}, args...)
}

// apiServerArgs are arguments that only our API server has.
func (p programs) apiServerArgs(o Options) []string {
	if p.release != nil {
		return nil // An API server of a release always serves OpenAPI documents.
	}
	return []string{fmt.Sprintf("--openapi=%t", o.OpenAPI)}
}

// identify writes what differs between programs whose clusters may begin with different data.
func (p programs) identify(w io.Writer) error {
	if p.release == nil {
		return writeBuildID(w, p.ours)
	}
	var errs []error
	for _, part := range []string{"etcd", "kube-apiserver"} {
		fmt.Fprintln(w, part, p.release.Version(part)) // Some releases have no build ID.
		errs = append(errs, writeBuildID(w, p.release.Path(part)))
	}
	return errors.Join(errs...)
}

// buildIDWithin is how many bytes at the beginning of a Go binary contain the ID of its build.
const buildIDWithin = 32 << 10

func writeBuildID(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(w, io.LimitReader(file, buildIDWithin))
	return err
}

// kubectl returns the path of kubectl. It is the same one for clusters of all releases, as an admin's is.
func kubectl(binDir string) (string, error) {
	release, err := openRelease(DefaultRelease)
	if err != nil {
		return "", err
	}
	if release != nil {
		return release.Path("kubectl"), nil
	}
	return binary(binDir, "kubectl")
}

// runner returns the path of the binary whose part run ends a program with its parent. Empty: there is none, because
// nobody has built our own control plane.
func runner(binDir string) string {
	path, err := binary(binDir, "controlplane")
	if err != nil {
		return ""
	}
	return path
}

// sources is a template of go list. It prints the files of this module that a program is built from, one a line.
const sources = `{{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$.Dir}}/{{.}}
{{end}}{{range $.EmbedFiles}}{{$.Dir}}/{{.}}
{{end}}{{end}}{{end}}`

// Build builds the program cmd/<name> of the repository as it is now, and returns its path in bin/. There is next to
// nothing to do if "make build" has built it. Give it time: on a busy machine the linker needs more than a cluster to
// start. The program's sources become inputs of the test.
func Build(ctx context.Context, name string) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build %s: %w", name, err)
		}
	}()
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	dir, err := defaultBinDir()
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	path = filepath.Join(dir, name)
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	// The flags are those of make build, which otherwise would link the program again.
	if _, err := runGo(ctx, root, "build", "-buildvcs=false", "-o", path, "./cmd/"+name); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "stamp.sh"), path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("hack/stamp.sh: %w: %s", err, bytes.TrimSpace(out))
	}
	files, err := runGo(ctx, root, "list", "-deps", "-f", sources, "./cmd/"+name)
	if err != nil {
		return "", err
	}
	return path, Inputs(append(strings.Fields(files), filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum"))...)
}

// Inputs tells go test that the result of the test depends on files that only other programs open: on each path, or on
// all that is in it if it is a directory. As long as no input has changed, go test takes the result of the run before.
func Inputs(paths ...string) error {
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path) // go test hears of it.
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("look at the inputs of a test: %w", err)
		}
	}
	return nil
}
