// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

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
