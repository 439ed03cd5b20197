// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// newTranslated is a job with one patch of its user that the Dispatch says to translate for an older worker.
func newTranslated(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, setting{older: true, spec: map[string]any{"runtimePatches": []any{kueueEntry("user.dev/own", "h100")}}})
	d := s.dispatch(t)
	d.Spec.TranslatedInto = v1alpha1.PodTemplateOverrides
	d.Spec.Domain = &v1alpha1.Domain{Label: "rack", Value: "r1"}
	d.Spec.PodSets = []v1alpha1.PodSet{{Name: "node", Count: 1, NodeSelector: map[string]string{"rack": "r1", "gpu": "h100"}}}
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.restart()
	return s
}

func overrides(copy *unstructured.Unstructured) any { return specOf(copy)["podTemplateOverrides"] }

// A worker with Kubeflow Trainer 2.1 gets the job's patches, and ours, in the field that it has. The copy is compared in that
// form: nothing is written as long as nobody changes it, and what somebody changes is changed back.
func TestTranslatedCopy(t *testing.T) {
	s := newTranslated(t)
	s.getUnderWay(t)
	node := []any{map[string]any{"name": "node"}}
	want := []any{
		map[string]any{
			"targetJobs": node, "metadata": map[string]any{"labels": map[string]any{"kueue.x-k8s.io/podset": "node"}},
			"spec": map[string]any{
				"nodeSelector": map[string]any{"gpu": "h100"},
				"tolerations":  []any{map[string]any{"key": "spot", "operator": "Exists"}},
			},
		},
		map[string]any{"targetJobs": node, "spec": map[string]any{"nodeSelector": map[string]any{"rack": "r1"}}},
	}
	copy := s.copy(t)
	check.Diff(t, want, overrides(copy), "podTemplateOverrides of the copy")
	if _, has := specOf(copy)["runtimePatches"]; has {
		t.Error("the copy has runtimePatches")
	}
	check.Equal(t, "podTemplateOverrides", copy.GetAnnotations()["trainyard.dev/translated-into"], "the mark of the copy")
	domain, jobs := trainjobs.DomainOf(copy)
	check.Diff(t, &v1alpha1.Domain{Label: "rack", Value: "r1"}, domain, "the domain of the copy, as a hub reads it that finds the copy")
	check.Diff(t, []string{"node"}, jobs, "the pods in the domain")

	s.edit(t, func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = true })
	s.edit(t, func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = false })
	version := s.copy(t).GetResourceVersion()
	s.restart()
	for range 3 {
		s.reconcile(t)
		s.Clock.Step(time.Minute)
	}
	check.Equal(t, version, s.copy(t).GetResourceVersion(), "the copy was written without an edit")

	s.edit(t, func(copy *unstructured.Unstructured) {
		specOf(copy)["podTemplateOverrides"] = overrides(copy).([]any)[:1]
		annotations := copy.GetAnnotations()
		delete(annotations, "trainyard.dev/translated-into")
		copy.SetAnnotations(annotations)
	})
	s.reconcile(t) // The mark.
	s.reconcile(t)
	copy = s.copy(t)
	check.Diff(t, want, overrides(copy), "podTemplateOverrides of the copy, after somebody has edited it")
	check.Equal(t, "podTemplateOverrides", copy.GetAnnotations()["trainyard.dev/translated-into"], "the mark, after somebody has removed it")
}

// A translated copy keeps the flavors with which it was created, also when it is changed back.
func TestTranslatedFlavors(t *testing.T) {
	const kueue = "kueue.x-k8s.io/manager"
	s := newScene(t, setting{older: true, spec: map[string]any{"runtimePatches": []any{kueueEntry(kueue, "h100")}}})
	d := s.dispatch(t)
	d.Spec.TranslatedInto = v1alpha1.PodTemplateOverrides
	must(t, s.Hub.Admin.Update(t.Context(), d))
	policy := &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{HubFlavors: v1alpha1.HubFlavorsPropagate}}
	s.options.Policy = func(context.Context, *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) {
		return policy, nil
	}
	s.restart()
	s.getUnderWay(t)
	want := []any{map[string]any{"targetJobs": []any{map[string]any{"name": "node"}}, "spec": map[string]any{
		"nodeSelector": map[string]any{"gpu": "h100"}, "tolerations": []any{map[string]any{"key": "spot", "operator": "Exists"}},
	}}}
	check.Diff(t, want, overrides(s.copy(t)), "podTemplateOverrides of the copy")

	policy.Spec.HubFlavors = v1alpha1.HubFlavorsIgnore
	s.edit(t, func(copy *unstructured.Unstructured) { delete(specOf(copy), "podTemplateOverrides") })
	s.reconcile(t)
	check.Diff(t, want, overrides(s.copy(t)), "podTemplateOverrides of the copy, after somebody has edited it")
}

// What cannot be translated is refused by name, although the worker was chosen.
func TestUntranslatableCopy(t *testing.T) {
	s := newTranslated(t)
	job := s.job(t)
	patch := kueueEntry("user.dev/own", "h100")
	jobs, _, err := unstructured.NestedSlice(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
	must(t, err)
	jobs[0].(map[string]any)["template"].(map[string]any)["metadata"] = map[string]any{"labels": map[string]any{"a": "b"}}
	must(t, unstructured.SetNestedSlice(patch, jobs, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"))
	specOf(job)["runtimePatches"] = []any{patch}
	must(t, s.Hub.Admin.Update(t.Context(), job))
	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, "spec.runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.metadata cannot be "+
		"translated into spec.podTemplateOverrides")
}

// A change of the job that the copy does not get is told by the name that the user knows.
func TestTranslatedChangeIsNotCopied(t *testing.T) {
	s := newTranslated(t)
	s.getUnderWay(t)
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.restart()
	job := s.job(t)
	specOf(job)["runtimePatches"] = []any{kueueEntry("user.dev/own", "b200")}
	must(t, s.Hub.Admin.Update(t.Context(), job))
	s.reconcile(t)
	select {
	case event := <-recorder.Events:
		if !strings.Contains(event, "ChangeNotCopied") || !strings.Contains(event, "the change of spec.runtimePatches, because") {
			t.Errorf("the Event says %q", event)
		}
	default:
		t.Error("there is no Event")
	}
}
