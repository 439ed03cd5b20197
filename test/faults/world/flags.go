// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// known are the arguments whose flags the manager has.
func known(args []string) []string {
	dir := os.Getenv("TRAINYARD_BIN")
	if dir == "" {
		dir = "../../../bin"
	}
	help, _ := exec.Command(filepath.Join(dir, "manager"), "--help").CombinedOutput()
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return !bytes.Contains(help, []byte(flag))
	})
}
