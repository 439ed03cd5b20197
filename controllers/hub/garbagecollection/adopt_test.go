// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The domain of a copy that the hub has no record of is read from the copy, and its pods count there.
func TestFillDomain(t *testing.T) {
	domain := v1alpha1.Domain{Label: "rack", Value: "r1"}
	placed := []v1alpha1.PodSet{{Name: "model-initializer"}, {Name: "node", NodeSelector: map[string]string{"gpu": "h100", "rack": "r1"}}}
	entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(trainjobs.DomainPatch(domain, placed))
	check.Must(t, err)
	copy := trainjobs.New()
	copy.Object["spec"] = map[string]any{"runtimePatches": []any{map[string]any{"manager": "user.dev/own"}, entry}}

	derived := []v1alpha1.PodSet{{Name: "model-initializer"}, {Name: "node", NodeSelector: map[string]string{"gpu": "h100"}}}
	found := v1alpha1.DispatchSpec{PodSets: derived}
	fillDomain(copy, &found)
	check.Diff(t, v1alpha1.DispatchSpec{Domain: &domain, PodSets: placed}, found, "what is put on record")
	check.Equal(t, 1, len(derived[1].NodeSelector), "the demand of the job is not changed")

	trainjobs.Translate(copy, v1alpha1.PodSpecOverrides)
	found = v1alpha1.DispatchSpec{PodSets: derived}
	fillDomain(copy, &found)
	check.Diff(t, v1alpha1.DispatchSpec{Domain: &domain, PodSets: placed}, found, "what is put on record of a translated copy")
	check.Equal(t, v1alpha1.PodSpecOverrides, trainjobs.TranslatedInto(copy), "what a translated copy has")

	copy = trainjobs.New()
	copy.Object["spec"] = map[string]any{"runtimePatches": []any{map[string]any{"manager": "user.dev/own"}}}
	found = v1alpha1.DispatchSpec{PodSets: derived}
	fillDomain(copy, &found)
	check.Diff(t, v1alpha1.DispatchSpec{PodSets: derived}, found, "a copy without a domain")
}

// A copy says that its runtime is pinned.
func TestRuntimeOfACopy(t *testing.T) {
	copy := trainjobs.New()
	check.Equal(t, "", runtimeOf(copy), "a copy that names the runtime of its job")
	trainjobs.SetAnnotation(copy, v1alpha1.AnnotationPinnedRuntime, "torch-12345678")
	check.Equal(t, v1alpha1.RuntimePin, runtimeOf(copy), "a copy that names a pinned runtime")
}

// What was brought for a copy that is found comes onto the record again, but nothing that its job does not name: a worker
// writes its copies.
func TestDependenciesOfACopy(t *testing.T) {
	hf, sign, other := v1alpha1.Dependency{Kind: "Secret", Name: "hf"}, v1alpha1.Dependency{Kind: "ConfigMap", Name: "sign"},
		v1alpha1.Dependency{Kind: "Secret", Name: "other"}
	for name, tc := range map[string]struct {
		needed, want []v1alpha1.Dependency
		brought      string
	}{
		"All":     {needed: []v1alpha1.Dependency{hf, sign}, brought: "ConfigMap/sign,Secret/hf", want: []v1alpha1.Dependency{sign, hf}},
		"Some":    {needed: []v1alpha1.Dependency{hf, sign}, brought: "Secret/hf", want: []v1alpha1.Dependency{hf}},
		"Nothing": {needed: []v1alpha1.Dependency{hf}},
		"Forged":  {needed: []v1alpha1.Dependency{hf}, brought: "Secret/hf," + other.String()},
		"Policy":  {brought: "Secret/hf"},
	} {
		t.Run(name, func(t *testing.T) {
			copy := trainjobs.New()
			trainjobs.SetAnnotation(copy, v1alpha1.AnnotationDependencies, tc.brought)
			check.Diff(t, tc.want, dependenciesOf(copy, tc.needed), "what is put on record")
		})
	}
}
