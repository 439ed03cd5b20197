// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

// patched returns a patch of the pods of one replicated job.
func patched(manager, step string, pod trainer.PodSpecPatch) trainer.RuntimePatch {
	return trainer.RuntimePatch{Manager: manager, TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
		Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{
			Name:     step,
			Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: &pod}}},
		}}}},
	}}
}

func patchedBy(patches ...trainer.RuntimePatch) *trainer.TrainJob {
	return &trainer.TrainJob{Spec: trainer.TrainJobSpec{RuntimePatches: patches}}
}

// recipeOf returns a runtime with replicated jobs. Each has an init container "fetch" and the given containers.
func runtimeOf(steps map[string][]string) *Runtime {
	r := newRuntime(&trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "r"}})
	for name, containers := range steps {
		step := jobsetv1alpha2.ReplicatedJob{Name: name}
		spec := &step.Template.Spec.Template.Spec
		spec.InitContainers = []corev1.Container{{Name: "fetch"}}
		for _, container := range containers {
			spec.Containers = append(spec.Containers, corev1.Container{Name: container})
		}
		r.spec.Template.Spec.ReplicatedJobs = append(r.spec.Template.Spec.ReplicatedJobs, step)
	}
	return r
}

const inFirstStep = "trainingRuntimeSpec.template.spec.replicatedJobs[0]."

func TestPatchOfUnknownNameTellsTheNearest(t *testing.T) {
	r := runtimeOf(map[string][]string{"node": {"node", "sidecar"}, "launcher": {"launcher"}})
	env := []corev1.EnvVar{{Name: "A", Value: "1"}}
	cases := map[string]struct {
		reason  string
		patches []trainer.RuntimePatch
		want    []string
	}{
		"Good": {
			reason: "What the runtime has can be patched, in whatever order.",
			patches: []trainer.RuntimePatch{patched("acme.io/a", "node", trainer.PodSpecPatch{
				Containers:     []trainer.ContainerPatch{{Name: "sidecar", Env: env}, {Name: "node"}},
				InitContainers: []trainer.ContainerPatch{{Name: "fetch", Env: env}},
			})},
		},
		"Empty": {
			reason:  "A patch need not say anything.",
			patches: []trainer.RuntimePatch{{Manager: "acme.io/a"}, {Manager: "acme.io/b", TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{}}},
		},
		"ReplicatedJob": {
			reason:  "The index says which patch it is, and the answer what would be right.",
			patches: []trainer.RuntimePatch{{Manager: "acme.io/a"}, patched("acme.io/b", "nodes", trainer.PodSpecPatch{})},
			want: []string{"spec.runtimePatches[1]." + inFirstStep + `name: Not found: "nodes": the replicated jobs of runtime "r" are: ` +
				`"launcher", "node"; did you mean "node"?`},
		},
		"NothingNear": {
			reason:  "A guess that is far off would mislead.",
			patches: []trainer.RuntimePatch{patched("acme.io/b", "workers", trainer.PodSpecPatch{})},
			want: []string{"spec.runtimePatches[0]." + inFirstStep + `name: Not found: "workers": the replicated jobs of runtime "r" are: ` +
				`"launcher", "node"`},
		},
		"Container": {
			reason: "A container is looked for in its replicated job.",
			patches: []trainer.RuntimePatch{patched("acme.io/b", "node", trainer.PodSpecPatch{
				Containers: []trainer.ContainerPatch{{Name: "node"}, {Name: "side-car"}},
			})},
			want: []string{"spec.runtimePatches[0]." + inFirstStep + `template.spec.template.spec.containers[1].name: Not found: "side-car": ` +
				`the containers of replicated job "node" are: "node", "sidecar"; did you mean "sidecar"?`},
		},
		"InitContainer": {
			reason: "An init container is not looked for among the others: the patch would add one without an image.",
			patches: []trainer.RuntimePatch{patched("acme.io/b", "node", trainer.PodSpecPatch{
				InitContainers: []trainer.ContainerPatch{{Name: "sidecar"}},
			})},
			want: []string{"spec.runtimePatches[0]." + inFirstStep + `template.spec.template.spec.initContainers[0].name: ` +
				`Not found: "sidecar": the init containers of replicated job "node" are: "fetch"`},
		},
		"Env": {
			reason: "The environment of the trainer has one place.",
			patches: []trainer.RuntimePatch{patched("acme.io/b", "node", trainer.PodSpecPatch{
				Containers: []trainer.ContainerPatch{{Name: "sidecar", Env: env}, {Name: "node", Env: env}},
			})},
			want: []string{"spec.runtimePatches[0]." + inFirstStep + `template.spec.template.spec.containers[1].env: ` +
				`Forbidden: the environment of container "node" cannot be patched; it is set by spec.trainer.env`},
		},
		"Manager": {
			reason:  "All faults come at once, with only the wrong value.",
			patches: []trainer.RuntimePatch{patched("acme.io/", "nde", trainer.PodSpecPatch{})},
			want: []string{
				`spec.runtimePatches[0].manager: Invalid value: "acme.io/": must be a domain-prefixed path (such as "acme.io/foo")`,
				"spec.runtimePatches[0]." + inFirstStep + `name: Not found: "nde": the replicated jobs of runtime "r" are: ` +
					`"launcher", "node"; did you mean "node"?`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := patchedBy(tc.patches...)
			var got []string
			for _, f := range patchFaults(j, allPatches(j), r) {
				got = append(got, f.Err.Error())
			}
			check.Diff(t, tc.want, got, fmt.Sprintf("%s\nfaults", tc.reason))
		})
	}
}

func TestChangedPatches(t *testing.T) {
	at := func(p trainer.RuntimePatch, second int64) trainer.RuntimePatch {
		p.Time = new(metav1.NewTime(time.Unix(second, 0)))
		return p
	}
	a := patched("acme.io/a", "node", trainer.PodSpecPatch{NodeSelector: map[string]string{"a": "1"}})
	b := patched("acme.io/b", "node", trainer.PodSpecPatch{NodeSelector: map[string]string{"b": "1"}})
	otherA := patched("acme.io/a", "node", trainer.PodSpecPatch{NodeSelector: map[string]string{"a": "2"}})
	type patches = []trainer.RuntimePatch
	cases := map[string]struct {
		reason      string
		old, new    patches
		wantIndices []int
		wantChanged bool
	}{
		"Same":     {reason: "Nothing has changed.", old: patches{a, b}, new: patches{a, b}},
		"Time":     {reason: "A time is no change.", old: patches{at(a, 1), b}, new: patches{at(a, 2), at(b, 3)}},
		"Added":    {reason: "Only the new one has to fit.", old: patches{a}, new: patches{a, b}, wantIndices: []int{1}, wantChanged: true},
		"Inserted": {reason: "Also if it comes first.", old: patches{a}, new: patches{b, a}, wantIndices: []int{0}, wantChanged: true},
		"Changed": {
			reason: "Only the changed one has to fit.",
			old:    patches{a, b}, new: patches{otherA, b}, wantIndices: []int{0}, wantChanged: true,
		},
		"Removed":   {reason: "The JobSet changes, and nothing has to fit.", old: patches{a, b}, new: patches{b}, wantChanged: true},
		"Reordered": {reason: "The last patch of a field wins.", old: patches{a, b}, new: patches{b, a}, wantChanged: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			indices, changed := ChangedPatches(patchedBy(tc.old...), patchedBy(tc.new...))
			if diff := cmp.Diff(tc.wantIndices, indices); diff != "" || changed != tc.wantChanged {
				t.Errorf("%s\nchanged = %v, indices (-want +got):\n%s", tc.reason, changed, diff)
			}
		})
	}
}
