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
