// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clusters

import (
	"os/exec"
	"syscall"
)

// selfEnding says whether spawn alone makes a child end with this process.
// Here it needs "controlplane run" around it, which watches its standard input.
const selfEnding = false

// spawn starts cmd in a process group of its own, so that a Ctrl-C in the
// terminal reaches only us.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// awaitStop does not know when a child has stopped.
func awaitStop(int) error { return nil }
