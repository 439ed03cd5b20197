// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// identify sets the cluster ID of a WorkerCluster.
func identify(t *testing.T, name string) {
	t.Helper()
	patch(t, workers, "", name, `{"status": {"clusterID": "the-id"}}`, "status")
}

func forgotten(t *testing.T, name string) string {
	t.Helper()
	return getWorker(t, name).GetAnnotations()["trainyard.dev/forget"]
}

func TestForget(t *testing.T) {
	d := newDrained(t)
	lost := d.namespace + "-lost"
	d.place(t, "urgent", lost, 1)
	wantCall(t, start(t, "forget", lost, "--yes"), 1, "", "has never been connected to worker")
	identify(t, lost)
	tests := []struct {
		typed   string
		wantErr string
	}{
		{typed: d.east + "\n", wantErr: fmt.Sprintf("error: %q is not %q; nothing was changed", d.east, lost)},
		{typed: "\n", wantErr: "use --yes in scripts"},
		{typed: "", wantErr: "use --yes in scripts"},
	}
	for _, tc := range tests {
		wantCall(t, startTyping(t, strings.NewReader(tc.typed), "forget", lost), 1, "", tc.wantErr)
		if got := forgotten(t, lost); got != "" {
			t.Fatalf("it was forgotten (%q) after %q was typed", got, tc.typed)
		}
	}
	c := startTyping(t, strings.NewReader(lost), "forget", lost)
	wantCall(t, c, 0, "workercluster/"+lost+" forgotten\n", "THE RISK: ")
	for _, want := range []string{d.namespace + "   urgent ", "Type the name of the WorkerCluster to forget it: "} {
		if !strings.Contains(c.err.String(), want) {
			t.Errorf("no %q on stderr:\n%s", want, &c.err)
		}
	}
	if got := forgotten(t, lost); got != "the-id" {
		t.Errorf("annotation %q, want the cluster's ID", got)
	}
	wantSpec(t, lost, map[string]any{})
	wantCall(t, start(t, "forget", lost, "--yes"), 0, "workercluster/"+lost+" already forgotten\n", "")
}

func TestForgetWorkerThatAnswers(t *testing.T) {
	d := newDrained(t)
	identify(t, d.east)
	for _, flags := range [][]string{{"--yes"}, {"--yes", "--force"}} { // The hub would see the worker again at once.
		wantCall(t, start(t, append([]string{"forget", d.east}, flags...)...), 1, "",
			fmt.Sprintf("worker %q is not forgotten: it is Ready; move its jobs with kubectl trainyard drain", d.east))
		if got := forgotten(t, d.east); got != "" {
			t.Fatalf("it was forgotten: %q", got)
		}
	}
	patch(t, workers, "", d.east, `{"status": {"conditions": [
		{"type": "Ready", "status": "False", "reason": "TrainJobAPIMissing", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	wantCall(t, start(t, "forget", d.east, "--yes"), 1, "", "it answers (TrainJobAPIMissing); look again, or use --force")
	c := start(t, "forget", d.east, "--yes", "--force")
	wantCall(t, c, 0, "workercluster/"+d.east+" forgotten\n", d.namespace+"   runs ")
	if strings.Contains(c.err.String(), "Type the name") {
		t.Errorf("--yes asks: %s", &c.err)
	}
}

// TestForgetWorkerThatComesBack has a worker that returns while somebody reads what will happen.
func TestForgetWorkerThatComesBack(t *testing.T) {
	d := newDrained(t)
	lost := d.namespace + "-lost"
	identify(t, lost)
	in, typing := io.Pipe()
	c := startTyping(t, in, "forget", lost)
	c.awaitErr(t, "Type the name")
	patch(t, workers, "", lost, `{"status": {"conditions": [
		{"type": "Ready", "status": "True", "reason": "Connected", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	if _, err := io.WriteString(typing, lost+"\n"); err != nil {
		t.Fatal(err)
	}
	wantCall(t, c, 1, "", "is not forgotten: it is Ready")
	if got := forgotten(t, lost); got != "" {
		t.Errorf("it was forgotten: %q", got)
	}
	patch(t, workers, "", lost, `{"status": {"conditions": [
		{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`, "status")
	c = startTyping(t, in, "forget", lost) // Nobody types anything.
	c.awaitErr(t, "Type the name")
	c.interrupt()
	if code := c.wait(t); code != 130 || strings.Contains(c.err.String(), "error:") {
		t.Errorf("exit code %d, stderr %q", code, &c.err)
	}
}
