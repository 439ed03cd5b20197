// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logarchive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// partPrefix begins the names of files that are being written. No name of Kubernetes begins so.
const partPrefix = ".part-"

// Dir is a Store in a directory. Only its owner can read the files. Replicas of the manager may share it.
type Dir struct{ root *os.Root }

// NewDir opens an existing directory.
func NewDir(name string) (*Dir, error) {
	root, err := os.OpenRoot(name) // Nothing is read or written outside of it, whatever links it has.
	if err != nil {
		return nil, err
	}
	return &Dir{root: root}, nil
}

// Put implements Store. The object is on disk when Put returns.
func (d *Dir) Put(_ context.Context, key string, data []byte) error {
	below := path.Dir(key)
	if err := d.root.MkdirAll(below, 0o700); err != nil {
		return err
	}
	part := path.Join(below, partPrefix+rand.Text())
	file, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = d.root.Rename(part, key)
	}
	if err != nil {
		return errors.Join(err, d.root.Remove(part))
	}
	return nil
}

// Get implements Store.
func (d *Dir) Get(_ context.Context, key string, limit int64) ([]byte, error) {
	file, err := d.root.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	} else if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return ReadAll(file, limit)
}

// ReadAll reads an object that may have limit bytes.
func ReadAll(from io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the object has more than %d bytes", limit)
	}
	return data, err
}

// List implements Store.
func (d *Dir) List(_ context.Context, key string) ([]string, error) {
	directory, err := d.root.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer func() { _ = directory.Close() }()
	names, err := directory.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, partPrefix) })
	slices.Sort(names)
	return names, err
}
