// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
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
