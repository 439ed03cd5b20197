// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// kueueEntry is what a Kueue has written into a job that it has started.
func kueueEntry(manager, gpu string) map[string]any {
	pod := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"kueue.x-k8s.io/podset": "node"}},
		"spec": map[string]any{
			"nodeSelector": map[string]any{"gpu": gpu},
			"tolerations":  []any{map[string]any{"key": "spot", "operator": "Exists"}},
		},
	}
	if manager == "trainyard.dev/hub-flavors" {
		delete(pod, "metadata")
	}
	node := map[string]any{"name": "node", "template": map[string]any{"spec": map[string]any{"template": pod}}}
	return map[string]any{"manager": manager, "trainingRuntimeSpec": map[string]any{
		"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{node}}},
	}}
}

// A copy keeps the flavors that the policy gave it at its creation, even if the policy, the entry of the hub's Kueue or
// the copy changes. The entry of the worker's Kueue stays beside them.
func TestFlavorsOfTheCopy(t *testing.T) {
	const kueue, ours = "kueue.x-k8s.io/manager", "trainyard.dev/hub-flavors"
	for name, test := range map[string]struct {
		flavors, later v1alpha1.HubFlavors
		want           []any
	}{
		"Ignore":  {flavors: v1alpha1.HubFlavorsIgnore, later: v1alpha1.HubFlavorsPropagate},
		"Require": {flavors: v1alpha1.HubFlavorsRequire, later: v1alpha1.HubFlavorsPropagate},
		"Propagate": {
			flavors: v1alpha1.HubFlavorsPropagate, later: v1alpha1.HubFlavorsIgnore, want: []any{kueueEntry(ours, "h100")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{spec: map[string]any{"runtimePatches": []any{kueueEntry(kueue, "h100")}}})
			recorder, policy := events.NewFakeRecorder(10), &v1alpha1.DispatchPolicy{}
			policy.Spec.HubFlavors = test.flavors
			s.options.Recorder = recorder
			s.options.Policy = func(context.Context, *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) {
				return policy, nil
			}
			s.restart()
			s.getUnderWay(t)
			want := append([]any{}, test.want...)
			if diff := cmp.Diff(want, patchesWithoutTimes(s.copy(t))); diff != "" {
				t.Fatalf("runtimePatches of the copy (-want +got):\n%s", diff)
			}

			policy.Spec.HubFlavors = test.later
			job := s.job(t)
			specOf(job)["runtimePatches"] = []any{kueueEntry(kueue, "b200")}
			must(t, s.Hub.Admin.Update(t.Context(), job))
			s.edit(t, func(copy *unstructured.Unstructured) {
				patches, _ := specOf(copy)["runtimePatches"].([]any)
				specOf(copy)["runtimePatches"] = append(patches, kueueEntry(kueue, "a100"))
			})
			version := s.copy(t).GetResourceVersion()
			s.restart()
			for range 3 {
				s.reconcile(t)
				s.Clock.Step(time.Minute)
			}
			copy := s.copy(t)
			check.Diff(t, append(want, kueueEntry(kueue, "a100")), patchesWithoutTimes(copy),
				"later runtimePatches of the copy")
			check.Equal(t, version, copy.GetResourceVersion(), "the copy was written")
			if d := s.dispatch(t); d.Spec.Eviction != nil || len(recorder.Events) > 0 {
				t.Errorf("the Dispatch has the eviction %v, and there are %d Events", d.Spec.Eviction, len(recorder.Events))
			}
		})
	}
}

// patchesWithoutTimes are the runtimePatches of a copy. It is never nil.
func patchesWithoutTimes(copy *unstructured.Unstructured) []any {
	patches, _ := specOf(copy)["runtimePatches"].([]any)
	found := []any{}
	for _, patch := range patches {
		delete(patch.(map[string]any), "time")
		found = append(found, patch)
	}
	return found
}
