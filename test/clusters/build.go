// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// Build builds the program cmd/<name> of the repository as it is now, and returns its path in bin/. There is next to
// nothing to do if "make build" has built it. Give it time: on a busy machine the linker needs more than a cluster to
// start.
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
	path = filepath.Join(dir, name)
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	_, err = runGo(ctx, root, "build", "-o", path, "./cmd/"+name)
	return path, err
}
