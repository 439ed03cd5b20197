// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// A job does not come to a worker that does not know its fields, and the explanation says which field the worker has
// instead. Other jobs come there.
func TestFieldUnknown(t *testing.T) {
	old := worker("old", 4, 8, func(w *Worker) {
		w.Trainer = v1alpha1.TrainerAPI{
			Release: "2.1", Fields: []string{"podTemplateOverrides", "trainer"},
			Missing: []string{"activeDeadlineSeconds", "runtimePatches"}, MissingOfRuntimes: []string{"mlPolicy.jax"},
			Untranslatable: []string{"activeDeadlineSeconds", "runtimePatches.x"},
		}
		w.Runtimes = NewRuntimes(map[types.NamespacedName]Comparison{{Namespace: "a", Name: "theirs"}: {Foreign: true}, {Namespace: "a", Name: "brought"}: {}}, true)
	})
	silent := worker("silent", 4, 8, func(w *Worker) { w.Trainer.MissingOfRuntimes = []string{"mlPolicy.jax"} })
	recent := worker("recent", 4, 0)
	runtime := func(name string) func(*Job) {
		return func(j *Job) {
			j.Runtime = Runtime{Kind: "TrainingRuntime", Key: types.NamespacedName{Namespace: "a", Name: name}, Fields: []string{"mlPolicy.jax"}}
		}
	}
	uses := func(fields ...string) func(*Job) { return func(j *Job) { j.Fields = fields } }
	for name, tc := range map[string]struct {
		reason  string
		job     func(*Job)
		worker  Worker
		skew    v1alpha1.SkewRule
		message string                // Empty: the job fits.
		into    v1alpha1.PatchesField // What the copy has then.
	}{
		"Unknown": {
			reason: "the worker has another field for that", job: uses("runtimePatches"), worker: old,
			message: "its TrainJobs do not have spec.runtimePatches (Kubeflow Trainer 2.1, with spec.podTemplateOverrides); " +
				"a DispatchPolicy with skew: Translate lets the copy say it with that",
		},
		"Translated": {
			reason: "the copy has that field", job: uses("runtimePatches"), worker: old, skew: v1alpha1.SkewTranslate, into: v1alpha1.PodTemplateOverrides,
		},
		"Untranslatable": {
			reason: "a part of it has no equivalent", job: uses("runtimePatches", "runtimePatches.x"), worker: old, skew: v1alpha1.SkewTranslate,
			message: "its TrainJobs do not have spec.runtimePatches.x (Kubeflow Trainer 2.1, with spec.podTemplateOverrides)",
		},
		"Refused": {
			reason: "it would not help to translate", job: uses("activeDeadlineSeconds"), worker: old, skew: v1alpha1.SkewRefuse,
			message: "its TrainJobs do not have spec.activeDeadlineSeconds (Kubeflow Trainer 2.1, with spec.podTemplateOverrides)",
		},
		"Native": {reason: "there is nothing to translate", job: func(*Job) {}, worker: old, skew: v1alpha1.SkewTranslate},
		"Other":  {reason: "some other worker lacks it", job: uses("trainer.image"), worker: old},
		"Plain":  {reason: "the job uses nothing new", job: func(*Job) {}, worker: old},
		"Runtime": {
			reason: "the runtime would be created there", job: runtime("ours"), worker: old,
			message: `TrainingRuntime "ours" uses spec.mlPolicy.jax, which its runtimes do not have (Kubeflow Trainer 2.1, with spec.podTemplateOverrides)`,
		},
		"Pinned": {
			reason: "the worker's own does not count", job: func(j *Job) { runtime("theirs")(j); j.PinsRuntime = true }, worker: old,
			message: `TrainingRuntime "theirs" uses spec.mlPolicy.jax, which its runtimes do not have (Kubeflow Trainer 2.1, with spec.podTemplateOverrides)`,
		},
		"Brought": {
			reason: "the hub would replace it", job: runtime("brought"), worker: old,
			message: `TrainingRuntime "brought" uses spec.mlPolicy.jax, which its runtimes do not have (Kubeflow Trainer 2.1, with spec.podTemplateOverrides)`,
		},
		"OwnRuntime":     {reason: "the worker has its own", job: runtime("theirs"), worker: old},
		"RuntimeUnasked": {reason: "nobody knows the worker's runtimes", job: runtime("ours"), worker: silent},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "1", PodSets: []v1alpha1.PodSet{podSet(1, 1)}}
			tc.job(&job)
			var policies []Policy
			if tc.skew != "" {
				policies = []Policy{{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Skew: tc.skew}}}}
			}
			lines := Explain(job, policies, []Worker{tc.worker, recent})
			check.Equal(t, v1alpha1.ReasonInsufficientResources, lines[1-indexOf(lines, tc.worker.Name)].Reason, "the other worker")
			line := lines[indexOf(lines, tc.worker.Name)]
			decision := Decide(job, policies, []Worker{tc.worker, recent})
			words := "; the copy says in spec.podTemplateOverrides what the job says in spec.runtimePatches, which the worker does not have (Kubeflow Trainer 2.1)"
			check.Equal(t, tc.into != "", strings.Contains(decision.Message, words), "%s: %s", tc.reason, decision.Message)
			check.Equal(t, tc.into != "", strings.Contains(line.Message, words), "%s: %s", tc.reason, line.Message)
			if tc.message == "" {
				check.Equal(t, v1alpha1.ReasonFits, line.Reason, "%s", tc.reason)
				check.Equal(t, tc.worker.Name, decision.Cluster, "%s", tc.reason)
				check.Equal(t, tc.into, TranslatedInto(&job, decision.Policy, &tc.worker.Trainer), "%s", tc.reason)
				return
			}
			check.Diff(t, explained(tc.worker.Name, v1alpha1.ReasonFieldUnknown, tc.message), line, tc.reason)
			check.Equal(t, "", decision.Cluster, "%s", tc.reason)
			check.Equal(t, ChangedWorker, RemedyOf(line.Reason), "what helps")
		})
	}
}

func indexOf(lines []v1alpha1.ClusterExplanation, name v1alpha1.ClusterName) int {
	for i := range lines {
		if lines[i].Cluster == name {
			return i
		}
	}
	return -1
}

// Jobs of one kind have the same unknown fields: a class must not be judged by a job that has fewer.
func TestUnknownFieldsTellKindsApart(t *testing.T) {
	plain, patched := Job{}, Job{Fields: []string{"runtimePatches"}}
	other := Job{Runtime: Runtime{Kind: "TrainingRuntime", Fields: []string{"mlPolicy.jax"}}}
	if plain.Kind() == patched.Kind() || plain.Kind() == other.Kind() || patched.Kind() == other.Kind() {
		t.Error("jobs with different fields are of one kind")
	}
}
