// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// runCommand runs os.Args[1:] until it ends, or until standard input ends, and
// returns its exit code, 128 plus the signal if a signal ended it.
func runCommand() int {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: controlplane run -- COMMAND [ARGUMENT...]")
		return 2
	}
	// The kernel sends the parent death signal when the thread that forked
	// ends. The main goroutine's thread ends with the process.
	runtime.LockOSThread()

	child := exec.Command(args[0], args[1:]...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = dieWithParent()

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	if err := child.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "controlplane run: %v\n", err)
		return 127
	}
	go func() {
		for s := range signals {
			_ = child.Process.Signal(s)
		}
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = child.Process.Kill()
	}()
	return exitCode(child.Wait())
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 1
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
