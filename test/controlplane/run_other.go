// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "syscall"

// dieWithParent asks for nothing: only Linux can tie a child to its parent.
// The child is still killed when standard input ends; it is left behind only
// if this process alone is killed with SIGKILL.
func dieWithParent() *syscall.SysProcAttr {
	return nil
}
