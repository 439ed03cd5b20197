// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// dieWithParent asks the kernel to kill the child when this process ends,
// however it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
