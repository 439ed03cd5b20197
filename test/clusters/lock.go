// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/util/wait"
)

// lockDir keeps other launchers out of a cluster's directory, whose old state
// a start removes. The lock is held until the file is closed or this process ends.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	lock, err := flock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("lock %s, which another running cluster may use: %w", dir, err)
	}
	return lock, nil
}

// lockFile waits until nobody else has the lock of a file. The lock is held until the file is closed or this process
// ends.
func lockFile(ctx context.Context, path string) (lock *os.File, err error) {
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		lock, err = flock(path)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return lock, nil
}

// flock fails with EWOULDBLOCK while somebody else has the lock. It does not open the file with package os: go test would
// take the lock for an input of the test.
func flock(path string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
