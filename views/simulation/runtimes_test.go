// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// A status does not have the runtime that a worker has of its own. If that makes other pods, a note says that the hub's was
// assumed for the worker.
func TestOwnRuntimeIsNoted(t *testing.T) {
	with := func(path string) string {
		return strings.Replace(worker("own", 8), "status:\n",
			"status:\n  runtimes: [{kind: ClusterTrainingRuntime, name: torch, state: Differs, paths: [\""+path+"\"], since: 2026-01-01T00:00:00Z}]\n", 1)
	}
	same := "apiVersion: trainyard.dev/v1alpha1\nkind: DispatchPolicy\nmetadata: {name: same}\nspec: {runtime: Same}\n"
	for name, tc := range map[string]struct {
		reason string
		files  []string
		want   string
	}{
		"OtherPods": {
			reason: "the hub counts other pods there", files: []string{with("spec.mlPolicy.numNodes")},
			want: `worker "own" has its own ClusterTrainingRuntime "torch", with which the hub counts its room: it differs in spec.mlPolicy.numNodes; ` +
				"the hub's is assumed here, so the answer about this worker may be wrong",
		},
		"Image": {reason: "the pods are as many and as large", files: []string{with("spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].image")}},
		"Same":  {reason: "the worker takes no such job", files: []string{with("spec.mlPolicy.numNodes"), same}},
		"Equal": {reason: "nothing differs", files: []string{worker("own", 8)}},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, err := run(t, append(tc.files, torch, job("a", 1, ""))...)
			check.Must(t, err)
			var want []string
			if tc.want != "" {
				want = []string{tc.want}
			}
			check.Diff(t, want, outcome.Notes, tc.reason)
		})
	}
}
