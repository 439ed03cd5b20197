// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The manager stops between the decision and the copy. The next one makes the copy in the domain that the Dispatch
// names, and changes the copy back if somebody takes it out of there.
func TestCopyInItsDomain(t *testing.T) {
	s := newScene(t, setting{spec: map[string]any{"runtimePatches": []any{kueueEntry("user.dev/own", "h100")}}})
	d := s.dispatch(t)
	d.Spec.Domain = &v1alpha1.Domain{Label: "rack", Value: "r1"}
	d.Spec.PodSets = []v1alpha1.PodSet{{Name: "node", Count: 1, NodeSelector: map[string]string{"rack": "r1", "gpu": "h100"}}}
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.restart()
	s.getUnderWay(t)
	want := []any{kueueEntry("user.dev/own", "h100"), map[string]any{
		"manager": "trainyard.dev/topology", "trainingRuntimeSpec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"replicatedJobs": []any{map[string]any{"name": "node", "template": map[string]any{"spec": map[string]any{"template": map[string]any{
				"spec": map[string]any{"nodeSelector": map[string]any{"rack": "r1"}},
			}}}}},
		}}},
	}}
	check.Diff(t, want, patchesWithoutTimes(s.copy(t)), "runtimePatches of the copy")

	s.edit(t, func(copy *unstructured.Unstructured) {
		specOf(copy)["runtimePatches"] = specOf(copy)["runtimePatches"].([]any)[:1]
	})
	s.reconcile(t)
	check.Diff(t, want, patchesWithoutTimes(s.copy(t)), "runtimePatches of the copy, after somebody has edited it")
}
