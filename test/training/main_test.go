// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

// asProgram lets the test binary be the program itself, so that tests can kill it.
const asProgram = "TOY_TRAIN_TEST_RUNS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		go func() { // Standard input ends when the test ends, however it ends.
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const world = 3

// node is the process of one rank.
type node struct {
	command *exec.Cmd
	ended   chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

// Write collects what the process prints.
func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *node) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// start starts the processes of all ranks.
func start(t *testing.T, folder string, flags ...string) (nodes []*node) {
	t.Helper()
	address, err := ports.Free()
	check.Must(t, err)
	host, port, err := net.SplitHostPort(address)
	check.Must(t, err)
	for rank := range world {
		n := &node{ended: make(chan struct{})}
		n.command = exec.Command(os.Args[0], append([]string{"--steps=120", "--checkpoint-dir", folder}, flags...)...)
		n.command.Env = append(os.Environ(), asProgram+"=1", "PET_MASTER_ADDR="+host, "PET_MASTER_PORT="+port,
			fmt.Sprintf("PET_NNODES=%d", world), fmt.Sprintf("PET_NODE_RANK=%d", rank))
		n.command.Stdout, n.command.Stderr = n, n
		input, err := n.command.StdinPipe()
		check.Must(t, err)
		check.Must(t, n.command.Start())
		go func() {
			_ = n.command.Wait()
			close(n.ended)
		}()
		t.Cleanup(func() {
			_ = n.command.Process.Kill()
			<-n.ended
			_ = input.Close()
		})
		nodes = append(nodes, n)
	}
	return nodes
}

// code waits for the end and returns the exit code; -1 after a signal.
func (n *node) code(t *testing.T) int {
	t.Helper()
	select {
	case <-n.ended:
	case <-time.After(2 * check.Patience):
		t.Fatalf("still running:\n%s", n)
	}
	return n.command.ProcessState.ExitCode()
}

var result = regexp.MustCompile(`step=120 done loss=0\.0[0-9]+ weights=sha256:[0-9a-f]{64}`)

// results waits until all ranks have succeeded and returns the result on which they agree. The loss is about 20 at the
// start.
func results(t *testing.T, nodes []*node) string {
	t.Helper()
	for rank, n := range nodes {
		code := n.code(t)
		if got := result.FindString(n.String()); code != 0 || got == "" || got != result.FindString(nodes[0].String()) {
			t.Fatalf("rank %d ended with code %d:\n%s\nand rank 0 says\n%s", rank, code, n, nodes[0])
		}
	}
	return result.FindString(nodes[0].String())
}

func TestInterruptedTrainingHasTheSameResult(t *testing.T) {
	want := results(t, start(t, t.TempDir()))
	cases := map[string]struct {
		reason string
		victim int
		signal syscall.Signal
		code   int
	}{
		"KillOther": {reason: "Rank 0 notices and writes a checkpoint.", victim: 1, signal: syscall.SIGKILL, code: -1},
		"KillFirst": {reason: "The last regular checkpoint counts.", victim: 0, signal: syscall.SIGKILL, code: -1},
		"TermFirst": {reason: "SIGTERM writes a checkpoint.", victim: 0, signal: syscall.SIGTERM, code: 143},
		"TermOther": {reason: "The other ranks end too.", victim: 2, signal: syscall.SIGTERM, code: 143},
		"Stop":      {reason: "A silent rank is lost as well.", victim: 2, signal: syscall.SIGSTOP, code: -1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "new")
			patience := time.Minute
			if tc.signal == syscall.SIGSTOP {
				patience = 3 * time.Second
			}
			nodes := start(t, folder, "--checkpoint-every=7", "--pace=20ms", "--peer-timeout", patience.String())
			check.Within(2*check.Patience, 5*time.Millisecond)(t, "a checkpoint", func(g gomega.Gomega) {
				g.Expect(nodes[0].String()).To(gomega.ContainSubstring("step=42 checkpoint"))
			})
			check.Must(t, nodes[tc.victim].command.Process.Signal(tc.signal))
			for rank, n := range nodes {
				if rank == tc.victim {
					continue
				}
				if code := n.code(t); code != 1 || !strings.Contains(n.String(), "lost rank") {
					t.Errorf("%s\nrank %d ended with code %d:\n%s", tc.reason, rank, code, n)
				}
			}
			if tc.signal == syscall.SIGSTOP {
				check.Must(t, nodes[tc.victim].command.Process.Kill())
			}
			check.Equal(t, tc.code, nodes[tc.victim].code(t), "%s: it ended with code", tc.reason)
			again := start(t, folder)
			if got := results(t, again); got != want {
				t.Errorf("%s\nthe interrupted training has %q, the other one %q", tc.reason, got, want)
			}
			for rank, n := range again {
				if !strings.Contains(n.String(), "continues from the checkpoint") {
					t.Errorf("rank %d began anew:\n%s", rank, n)
				}
			}
		})
	}
}
