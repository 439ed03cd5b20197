// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The creation of a job warns of a Secret that its policy brings to workers and that is not there to be brought. What pods
// run without is not missing.
func TestReviewOfDependencies(t *testing.T) {
	s := newScene(t)
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Propagate: &v1alpha1.Propagation{
		Dependencies: []v1alpha1.DependencyKind{v1alpha1.DependSecrets},
	}})
	env := func(name string, optional bool) corev1.EnvVar {
		return corev1.EnvVar{Name: fmt.Sprintf("E_%t", optional), ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "token", Optional: &optional,
		}}}
	}
	job := s.Submit(t, "job", func(job *trainer.TrainJob) {
		job.Spec.Trainer.Env = []corev1.EnvVar{env("hf-token", false), env("comet", true)}
	})
	warnings := func(consented client.Reader) []string {
		_, warnings, err := NewReviewer(s.reconciler, consented).Review(t.Context(), job)
		check.Must(t, err)
		return warnings
	}
	// The real reader sees only objects with the label: TestWithoutConsentNothingIsRead of package dependencies.
	check.Diff(t, []string{fmt.Sprintf(`the pods need Secret "hf-token", and namespace %q of the hub has no such object with the label `+
		"trainyard.dev/propagate=true: nothing is brought to a worker, which must have it already", s.Namespace)}, warnings(s.Hub.Admin), "warnings")
	check.Equal(t, 0, len(warnings(nil)), "warnings of a manager that brings nothing")

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "hf-token"}}
	check.Must(t, s.Hub.Admin.Create(t.Context(), secret))
	check.Equal(t, 0, len(warnings(s.Hub.Admin)), "warnings once it is there")
	check.Must(t, s.Hub.Admin.Delete(t.Context(), secret))
	before := policy.DeepCopy()
	policy.Spec.Propagate.Dependencies = nil
	check.Must(t, s.Hub.Admin.Patch(t.Context(), policy, client.MergeFrom(before)))
	check.Equal(t, 0, len(warnings(s.Hub.Admin)), "warnings of a policy that brings nothing")
}

// What the hub brings to a worker for a job is what the hub's runtime names. If the runtime of the worker counted, whoever
// edits it there could ask for a Secret.
func TestOwnRuntimeNamesNoSecrets(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Propagate: &v1alpha1.Propagation{Dependencies: []v1alpha1.DependencyKind{v1alpha1.DependSecrets}}})
	own := ownTorch(s.torchVersion(t), 1, 1)
	greedy := ownRuntime(own.Version, strings.Replace(string(own.Own.JSON), `"image": "none"`, `"image": "none", "envFrom": [{"secretRef": {"name": "vault"}}]`, 1))
	s.runtimes = knownRuntimes{east: torchIs(greedy), west: torchIs(greedy)}
	s.restart(t)
	s.Submit(t, "job", plain, func(job *trainer.TrainJob) {
		job.Spec.Trainer = &trainer.Trainer{Env: []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "hf-token"}, Key: "token",
		}}}}}
	})
	d, _ := s.reconcile(t, "job")
	if d.Spec.Counted == nil || d.Spec.Counted.WorkerRuntime != greedy.Own.Digest {
		t.Fatalf("the worker's runtime was not counted: %+v", d)
	}
	check.Diff(t, []v1alpha1.Dependency{{Kind: "Secret", Name: "hf-token"}}, d.Spec.Dependencies, "what the worker gets")
}
