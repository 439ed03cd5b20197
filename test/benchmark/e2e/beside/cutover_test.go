// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// bin has the programs of make build and make controlplane.
const bin = "../../../../bin"

// TestCutOver takes over the worker of MultiKueue, and follows the printed steps to Trainyard and back.
func TestCutOver(t *testing.T) {
	h := newHub(t, 1)
	h.submit(t, "first", h.queue)
	h.kueues.gets(t, "first")
	h.resumed(t, "first")
	h.waits(t, "first", v1alpha1.ReasonManagedByMultiKueue)

	out := h.shell(t, "kubectl-trainyard import multikueue")
	h.waits(t, "first", v1alpha1.ReasonManagedByMultiKueue)
	h.follow(t, out, "To Trainyard:", func() {
		h.submit(t, "second", h.queue) // It waits until the queue is started again.
		h.activate(t, "first", false)
	})
	await(t, "have the job that waited placed on the worker of MultiKueue", func(ctx context.Context) error {
		d, err := h.dispatch(ctx, "second")
		if err == nil && d.Spec.Cluster == "" {
			err = fmt.Errorf("it waits: %+v", d.Status.Conditions)
		}
		return err
	})
	h.kueues.gets(t, "second")

	out = h.shell(t, "kubectl-trainyard import multikueue")
	h.follow(t, out, "Back to MultiKueue:", func() {
		h.submit(t, "third", h.queue)
		h.activate(t, "second", false)
	})
	h.kueues.gets(t, "third")
	h.waits(t, "third", v1alpha1.ReasonManagedByMultiKueue)
	for _, job := range []string{"first", "second", "third"} {
		if copies, others := h.kueues.created(t, job), h.ours.created(t, job); copies != 1 || others != 0 {
			t.Errorf("the worker of MultiKueue was given %d copies of %s, and the other worker %d", copies, job, others)
		}
	}
}

// follow runs the printed commands after a title, and calls stopped after the command that stops the queue.
func (h *hub) follow(t *testing.T, out, title string, stopped func()) {
	t.Helper()
	_, steps, found := strings.Cut(out, title)
	if !found {
		t.Fatalf("no steps %q in:\n%s", title, out)
	}
	for i, line := range strings.Split(steps, "\n") {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case isCommand:
			h.shell(t, command)
			if strings.Contains(command, `"stopPolicy":"Hold"`) {
				stopped()
			}
		case i > 0 && strings.HasSuffix(line, ":"):
			return // The next title.
		}
	}
}

// shell runs a command for the hub, and returns its standard output. Exit code 2 says that something is left to do.
func (h *hub) shell(t *testing.T, command string) string {
	t.Helper()
	programs, err := filepath.Abs(bin)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	script := exec.CommandContext(ctx, "bash", "-c", command)
	script.Env = append(os.Environ(), "KUBECONFIG="+h.cluster.Cluster.KubeconfigPath, "PATH="+programs+":"+os.Getenv("PATH"))
	out, err := script.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.ExitCode() != 2 {
		t.Fatalf("%s: %v: %s", command, err, failed.Stderr)
	}
	return string(out)
}
