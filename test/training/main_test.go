// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/ports"
)

// asProgram lets the test binary be the program itself, so that tests can kill it.
const asProgram = "RING_TRAIN_TEST_RUNS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		go func() { // Standard input ends when the test ends, however it ends.
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		main()
	}
	os.Exit(m.Run())
}

// patience is how long tests wait: much longer than anything takes, also on a busy machine.
const patience = 2 * time.Minute

// output collects what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// node is the process of one rank.
type node struct {
	command *exec.Cmd
	output  output
	ended   chan struct{}
}

// start starts one process for each folder of checkpoints.
func start(t *testing.T, folders []string, flags ...string) []*node {
	t.Helper()
	var peers []string
	for range folders {
		address, err := ports.Free()
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, address)
	}
	nodes := make([]*node, len(folders))
	for rank, folder := range folders {
		n := &node{ended: make(chan struct{})}
		n.command = exec.Command(os.Args[0], append([]string{"--checkpoint-dir", folder}, flags...)...)
		n.command.Env = append(os.Environ(), asProgram+"=1", "RING_PEERS="+strings.Join(peers, ","), "PET_NPROC_PER_NODE=2",
			fmt.Sprintf("PET_NNODES=%d", len(folders)), fmt.Sprintf("PET_NODE_RANK=%d", rank))
		n.command.Stdout, n.command.Stderr = &n.output, &n.output
		input, err := n.command.StdinPipe()
		if err == nil {
			err = n.command.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = n.command.Wait()
			close(n.ended)
		}()
		t.Cleanup(func() {
			_ = n.command.Process.Kill()
			<-n.ended
			_ = input.Close()
		})
		nodes[rank] = n
	}
	return nodes
}

// code waits for the end and returns the exit code; -1 after a signal.
func (n *node) code(t *testing.T) int {
	t.Helper()
	select {
	case <-n.ended:
		return n.command.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("still running after %s:\n%s", patience, n.output.String())
		return 0
	}
}

func (n *node) says(t *testing.T, text string) {
	t.Helper()
	g := gomega.NewWithT(t)
	eventually := g.Eventually(n.output.String).WithTimeout(patience).WithPolling(5 * time.Millisecond)
	eventually.Should(gomega.ContainSubstring(text))
}

var result = regexp.MustCompile(`step=120 done loss=[0-9.]+ weights=sha256:[0-9a-f]{64}`)

// results waits until all nodes have succeeded and returns the result on which they agree.
func results(t *testing.T, nodes []*node) string {
	t.Helper()
	found := map[string]bool{}
	for rank, n := range nodes {
		if code := n.code(t); code != 0 {
			t.Fatalf("rank %d ended with code %d:\n%s", rank, code, n.output.String())
		}
		found[result.FindString(n.output.String())] = true
	}
	if len(found) != 1 || found[""] {
		t.Fatalf("results are %q, want one for all ranks; rank 0 says:\n%s",
			slices.Collect(maps.Keys(found)), nodes[0].output.String())
	}
	return slices.Collect(maps.Keys(found))[0]
}

func folders(t *testing.T) []string {
	root := t.TempDir()
	return []string{filepath.Join(root, "0"), filepath.Join(root, "1"), filepath.Join(root, "2")}
}

// slow makes a training long enough to interrupt it. It does not change the result.
var slow = []string{"--steps=120", "--checkpoint-every=7", "--pace=20ms"}

func TestInterruptedTrainingHasTheSameResult(t *testing.T) {
	want := results(t, start(t, folders(t), "--steps=120"))
	cases := map[string]struct {
		reason string
		victim int
		signal syscall.Signal
		code   int
	}{
		"KillOther":     {reason: "Rank 0 notices and writes a checkpoint.", victim: 1, signal: syscall.SIGKILL, code: -1},
		"KillFirst":     {reason: "The last regular checkpoint counts.", victim: 0, signal: syscall.SIGKILL, code: -1},
		"TermFirst":     {reason: "SIGTERM writes a checkpoint.", victim: 0, signal: syscall.SIGTERM, code: 143},
		"TermOther":     {reason: "The other ranks end too.", victim: 2, signal: syscall.SIGTERM, code: 143},
		"StopAndResume": {reason: "A silent rank is lost as well.", victim: 2, signal: syscall.SIGSTOP},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			volumes := folders(t)
			flags := slow
			if tc.signal == syscall.SIGSTOP {
				flags = append(slices.Clone(slow), "--peer-timeout=2s")
			}
			nodes := start(t, volumes, flags...)
			nodes[0].says(t, "step=40 ")
			if err := nodes[tc.victim].command.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			for rank, n := range nodes {
				if rank == tc.victim && tc.signal == syscall.SIGSTOP {
					continue
				}
				code, want := n.code(t), 1
				if rank == tc.victim {
					want = tc.code
				} else if !strings.Contains(n.output.String(), "lost rank") {
					t.Errorf("rank %d does not say that it lost a rank:\n%s", rank, n.output.String())
				}
				if code != want {
					t.Errorf("%s\nrank %d ended with code %d, want %d:\n%s", tc.reason, rank, code, want, n.output.String())
				}
			}
			restarted := start(t, volumes, "--steps=120")
			if got := results(t, restarted); got != want {
				t.Errorf("%s\nthe interrupted training has %q, the other one %q", tc.reason, got, want)
			}
			for rank, n := range restarted {
				if !strings.Contains(n.output.String(), "continues from the checkpoint of rank 0") {
					t.Errorf("rank %d began anew:\n%s", rank, n.output.String())
				}
			}
		})
	}
}

func TestCheckpointOfAnotherRank(t *testing.T) {
	volumes := folders(t)
	want := results(t, start(t, folders(t), "--steps=120"))
	nodes := start(t, volumes, slow...)
	nodes[0].says(t, "step=49 checkpoint")
	_ = nodes[0].command.Process.Kill()
	for _, n := range nodes {
		n.code(t)
	}
	// The pods of ranks 0 and 2 change their nodes.
	volumes[0], volumes[2] = volumes[2], volumes[0]
	nodes = start(t, volumes, "--steps=120")
	if got := results(t, nodes); got != want {
		t.Errorf("after the move the result is %q, want %q", got, want)
	}
	nodes[1].says(t, "continues from the checkpoint of rank 2")
}

func TestOtherSettings(t *testing.T) {
	volumes := folders(t)
	results(t, start(t, volumes, "--steps=120"))
	// Rank 0 has a checkpoint. The others cannot know that its settings differ, and wait for it.
	nodes := start(t, volumes, "--steps=120", "--seed=2", "--rendezvous-timeout=3s")
	if code := nodes[0].code(t); code != 1 || !strings.Contains(nodes[0].output.String(), "is of other settings") {
		t.Errorf("rank 0 ended with code %d:\n%s", code, nodes[0].output.String())
	}
	if code := nodes[1].code(t); code != 1 || !strings.Contains(nodes[1].output.String(), "--rendezvous-timeout is over") {
		t.Errorf("rank 1 ended with code %d:\n%s", code, nodes[1].output.String())
	}
}

func TestExitCodeOfBadFlags(t *testing.T) {
	var out, problems bytes.Buffer
	if code := execute(context.Background(), []string{"--steps=0"}, &out, &problems); code != 1 {
		t.Errorf("code %d, want 1", code)
	}
	if !strings.Contains(problems.String(), "--steps=0: want at least 1") {
		t.Errorf("it says %q", problems.String())
	}
}
