// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestReferencesOfACopy: the manager knows what the pods of a copy name, also in the environment of the TrainJob, and what
// is made with the job.
func TestReferencesOfACopy(t *testing.T) {
	w := hub(t)
	references, err := newReferences(t.Context(), w.admin)
	check.Must(t, err)
	of := func(runtimeName string) []dependencies.Reference {
		job := newJob("default", "references", func(j *trainer.TrainJob) {
			j.Spec.ManagedBy = ptr.To(v1alpha1.ManagedByBuiltIn)
			j.Spec.RuntimeRef = trainer.RuntimeRef{
				APIGroup: ptr.To(trainer.GroupVersion.Group), Kind: ptr.To(trainer.ClusterTrainingRuntimeKind), Name: runtimeName,
			}
			j.Spec.Trainer = &trainer.Trainer{Env: []corev1.EnvVar{{Name: "HF_TOKEN", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "hf-token"}, Key: "token"},
			}}}}
		})
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
		check.Must(t, err)
		found, err := references(t.Context(), &unstructured.Unstructured{Object: content})
		check.Must(t, err)
		return found
	}
	token := dependencies.Reference{
		Object: dependencies.Object{Kind: dependencies.Secret, Name: "hf-token"}, Key: "token", Step: "node", Field: "env HF_TOKEN",
	}
	check.Diff(t, []dependencies.Reference{token}, of("torch-distributed"), "references of a job of torch")
	launcher := token
	launcher.Step = "launcher" // Its launcher is a node too.
	check.Diff(t, []dependencies.Reference{token, launcher}, of("deepspeed-distributed"), "references of an MPI job")
	check.Equal(t, 0, len(of("none")), "references of a job whose runtime is not there")
}
