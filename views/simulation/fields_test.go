// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// A worker whose status says that it lacks a field of the job does not get it, also if it has more room.
func TestFieldUnknown(t *testing.T) {
	lacks := strings.Replace(worker("older", 8), "status:\n",
		"status:\n  trainer: {version: v1alpha1, release: \"2.1\", fields: [podTemplateOverrides], missing: [activeDeadlineSeconds, runtimePatches]}\n", 1)
	for name, tc := range map[string]struct {
		more string
		want v1alpha1.ClusterName
	}{
		"Uses":    {more: "activeDeadlineSeconds: 600", want: ""},
		"DoesNot": {more: "suspend: false", want: "older"},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, err := run(t, torch, lacks, job("a", 1, "", tc.more))
			check.Must(t, err)
			d := outcome.Results[0].Dispatch
			check.Equal(t, tc.want, d.Spec.Cluster, "the worker")
			if tc.want == "" {
				check.Equal(t, v1alpha1.ReasonFieldUnknown, d.Status.Explanation[0].Reason, "the reason")
				check.Equal(t, "its TrainJobs do not have spec.activeDeadlineSeconds (Kubeflow Trainer 2.1, with spec.podTemplateOverrides)",
					d.Status.Explanation[0].Message, "the message")
			}
		})
	}
}

// What a worker makes of the resources of a job counts there, as in the manager.
func TestOlderTrainer(t *testing.T) {
	const agentless = `{type: AgentReady, status: "False", reason: AgentMissing, message: "", lastTransitionTime: null}`
	loose := strings.NewReplacer("mlPolicy: {numNodes: 1, torch: {}}, ", "", "image: torch", "image: torch, resources: {requests: {cpu: 1}}").Replace(torch)
	for release, want := range map[string]v1alpha1.ClusterName{"2.2": "", "2.3": "older"} {
		t.Run(release, func(t *testing.T) {
			worker := strings.NewReplacer("conditions: [", "conditions: ["+agentless+", ", "status:\n",
				"status:\n  trainer: {version: v1alpha1, release: \""+release+"\"}\n").Replace(worker("older", 1))
			outcome, err := run(t, loose, worker, job("a", 1), job("b", 1))
			check.Must(t, err)
			check.Equal(t, "older", outcome.Results[0].Dispatch.Spec.Cluster, "the worker of the first job")
			check.Equal(t, want, outcome.Results[1].Dispatch.Spec.Cluster, "the worker of the second job")
		})
	}
}
