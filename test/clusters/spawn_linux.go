// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfEnding says whether spawn alone makes a child end with this process.
const selfEnding = true

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan<- error
}

// spawner starts all children from one OS thread. The kernel sends a parent
// death signal when the thread that forked ends, not when the process does,
// and the Go runtime ends threads as it likes unless a goroutine that never
// returns holds one.
var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.done <- r.cmd.Start()
		}
	}()
	return requests
})

// spawn starts cmd so that it is killed when this process ends, and in a
// process group of its own, so that a Ctrl-C in the terminal reaches only us.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done := make(chan error)
	spawner() <- spawnRequest{cmd: cmd, done: done}
	return <-done
}

// awaitStop waits until a child that was sent SIGSTOP has stopped, with all its threads, or has ended. Until then it
// may go on, and answer.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD): // It has ended, and somebody else has waited for it.
			return nil
		default:
			return err
		}
	}
}
