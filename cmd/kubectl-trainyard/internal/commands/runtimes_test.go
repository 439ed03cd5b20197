// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The table has a row for each runtime of a worker that is not the hub's, and --diff the fields. Only the hub is asked.
func TestRuntimes(t *testing.T) {
	namespace := setUp(t)
	hubWith(t, namespace)
	east, torch := namespace+"-east", namespace+"-torch"
	patch(t, v1alpha1.GroupVersion.WithResource("workerclusters"), "", east, fmt.Sprintf(`{"status": {"runtimes": [
		{"kind": "ClusterTrainingRuntime", "name": %q, "state": "Differs", "since": "2026-01-01T00:00:00Z",
		 "paths": ["spec.mlPolicy.numNodes", "spec.template.spec.replicatedJobs[0].replicas"]},
		{"kind": "TrainingRuntime", "namespace": "team", "name": "%s-own", "state": "Unsupported", "since": "2026-01-01T00:00:00Z",
		 "paths": ["spec.later"], "message": "strict decoding error: unknown field \"spec.later\""}
	]}}`, torch, torch), "status")

	c := start(t, "runtimes", torch)
	check.Equal(t, 0, c.wait(t), "exit code")
	rows := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	if len(rows) != 2 || !strings.HasPrefix(rows[0], "NAMESPACE") {
		t.Fatalf("printed %q, want a header and a row", c.out.String())
	}
	fields := strings.Fields(rows[1])
	check.Diff(t, []string{"<none>", torch, east, "Differs", "spec.mlPolicy.numNodes", "(+1)"}, append(fields[:4:4], fields[5:]...), "row")

	c = start(t, "runtimes", "trainingruntime/"+torch+"-own", "--diff")
	check.Equal(t, 0, c.wait(t), "exit code")
	want := fmt.Sprintf("\nTrainingRuntime team/%s-own on worker %s: Unsupported\n  spec.later\n  strict decoding error: unknown field \"spec.later\"\n", torch, east)
	if !strings.HasSuffix(c.out.String(), want) {
		t.Errorf("printed %q, want %q at the end", c.out.String(), want)
	}
	wantCall(t, start(t, "runtimes", namespace+"-none"), 0, "", "No worker is known to have another runtime")
	wantCall(t, start(t, "runtimes", torch, torch), 1, "", "name one runtime")
	c = start(t, "runtimes", torch, "-o", "name")
	check.Equal(t, 0, c.wait(t), "exit code")
	check.Equal(t, "workercluster.trainyard.dev/"+east+"\n", c.out.String(), "names")
}
