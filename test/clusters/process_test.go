// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/upstream"
)

func TestClusterEndsWhenItsParentIsKilled(t *testing.T) {
	g := gomega.NewWithT(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), helperEnv+"="+t.TempDir())
	parent.Stderr = os.Stderr
	stdout, err := parent.StdoutPipe()
	check.Must(t, err)
	check.Must(t, parent.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read process IDs: %v", err)
	}
	pids := strings.Fields(line)
	if len(pids) != 6 { // etcd, API server, controller manager, scheduler, JobSet, kwok
		t.Fatalf("want 6 processes, got %v", pids)
	}
	for _, pid := range pids {
		if !alive(t, pid) {
			t.Fatalf("process %s does not run", pid)
		}
		t.Cleanup(func() { endIfAlive(t, pid) })
	}

	check.Must(t, parent.Process.Kill())
	_ = parent.Wait()
	for _, pid := range pids {
		g.Eventually(func() bool { return alive(t, pid) }, "10s", tick).Should(gomega.BeFalse(), "process "+pid)
	}
}

// alive says whether a process runs. A process that has ended does not run, even if nobody has waited for it.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	number, err := strconv.Atoi(pid)
	check.Must(t, err)
	if errors.Is(syscall.Kill(number, 0), syscall.ESRCH) {
		return false
	}
	status, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err != nil || !strings.Contains(string(status), ") Z ")
}

// endIfAlive ends what a failed test leaves behind.
func endIfAlive(t *testing.T, pid string) {
	t.Helper()
	if !alive(t, pid) {
		return
	}
	if number, err := strconv.Atoi(pid); err == nil {
		_ = syscall.Kill(number, syscall.SIGKILL)
	}
}

func TestProcessIsFoundByName(t *testing.T) {
	c := sharedCluster(t)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "jobset-manager", "kwok"} {
		if p := c.Process(name); p == nil || p.Name != name || !alive(t, strconv.Itoa(p.PID())) {
			t.Errorf("%s: got %+v", name, p)
		} else if !slices.Contains(c.Processes(), p) {
			t.Errorf("%s is not among the processes that run", name)
		}
	}
	check.Equal(t, nil, c.Process("nobody"), "got a process nobody has started")
}

func TestRunEndsProcesses(t *testing.T) {
	c := sharedCluster(t)
	sleep := func(name string) *Process {
		p, err := c.Run(t.Context(), name, "sh", "-c", "echo $KUBECONFIG; exec sleep 600")
		check.Must(t, err)
		return p
	}
	stopped, killed := sleep("stopped"), sleep("killed")
	check.Must(t, stopped.Stop())
	check.Must(t, killed.Kill())
	for p, want := range map[*Process]syscall.Signal{stopped: syscall.SIGTERM, killed: syscall.SIGKILL} {
		exit := new(exec.ExitError)
		if err := p.Wait(t.Context()); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != want {
			t.Errorf("%s: want its end by %v, got: %v", p.Name, want, err)
		}
	}
	check.Equal(t, nil, stopped.Kill(), "kill what has ended")

	ended, err := c.Run(t.Context(), "ended", "sh", "-c", "echo $KUBECONFIG")
	check.Must(t, err)
	check.Must(t, ended.Wait(t.Context()))
	if log, err := os.ReadFile(ended.LogPath); err != nil || strings.TrimSpace(string(log)) != c.KubeconfigPath {
		t.Errorf("log has %q, want the kubeconfig's path: %v", log, err)
	}
}

// Panicked finds a panic in the log of a program, even after the program was started again under its name.
func TestPanicked(t *testing.T) {
	c := sharedCluster(t)
	run := func(script string) *Process {
		p, err := c.Run(t.Context(), "panics", "sh", "-c", script)
		check.Must(t, err)
		_ = p.Wait(t.Context()) // Its exit code is its own matter.
		return p
	}
	if err := run("echo 'do not panic: all is well'").Panicked(); err != nil {
		t.Errorf("got %v, want none", err)
	}
	run("echo 'panic: boom' >&2; exit 2")
	if err := run("echo fine").Panicked(); err == nil || !strings.Contains(err.Error(), "panic: boom") {
		t.Errorf("got %v, want the panic of the process before", err)
	}
}

// TestControlplaneRun tests the wrapper for programs that would outlive their
// parent, which the launcher needs only outside Linux.
func TestControlplaneRun(t *testing.T) {
	dir, err := defaultBinDir()
	check.Must(t, err)
	path, err := binary(dir, "controlplane")
	if err != nil && os.Getenv(upstream.Variable) != "" {
		t.Skip("with a release nobody has built our own control plane")
	}
	check.Must(t, err)
	tests := map[string]struct {
		reason   string
		script   string
		signal   os.Signal
		endStdin bool
		want     int
	}{
		"ExitCode":   {reason: "its exit code is the program's", script: "echo started; exit 7", want: 7},
		"Signal":     {reason: "signals reach the program", script: "trap 'exit 9' TERM; echo started; while :; do sleep 0.1; done", signal: syscall.SIGTERM, want: 9},
		"EndOfStdin": {reason: "the end of standard input kills", script: "echo started; exec sleep 600", endStdin: true, want: 128 + 9},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			cmd := exec.CommandContext(ctx, path, "run", "--", "sh", "-c", tc.script)
			stdin, err := cmd.StdinPipe()
			check.Must(t, err)
			stdout, err := cmd.StdoutPipe()
			check.Must(t, err)
			check.Must(t, cmd.Start())
			if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if tc.signal != nil {
				check.Must(t, cmd.Process.Signal(tc.signal))
			}
			if tc.endStdin {
				check.Must(t, stdin.Close())
			}
			_, _ = io.Copy(io.Discard, stdout)
			_ = cmd.Wait()
			check.Equal(t, tc.want, cmd.ProcessState.ExitCode(), "%s: exit code", tc.reason)
		})
	}
}
