// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"io/fs"
	"os"
	"strings"
)

type kindOfPath int

const (
	missing kindOfPath = iota
	symlink
	directoryOrFile
)

// inspect says what exists at a path, without following a symlink, and where a symlink points to.
func inspect(path string) (kind kindOfPath, target string) {
	info, err := os.Lstat(path)
	if err != nil {
		return missing, ""
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return directoryOrFile, ""
	}
	target, err = os.Readlink(path)
	if err != nil {
		return missing, ""
	}
	return symlink, target
}

// components splits a path. It keeps "..", because after a symlink ".." means the parent of the target.
func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
