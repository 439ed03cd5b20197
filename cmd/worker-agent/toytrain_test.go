// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// TestToyTrain runs the sample of test/training with the real JobSet and without the program: its pods must have the
// environment and the host names that the program derives from it.
func TestToyTrain(t *testing.T) {
	setUp(t)
	startAgent(t)
	objects, err := clusters.ReadObjects("../../test/training/toy-train.yaml")
	check.Must(t, err)
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "spec", "managedBy") // There is no hub here.
		check.Must(t, world.cluster.ApplyObjects(t.Context(), object))
	}
	j := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "toy-train"}}
	var pods []corev1.Pod
	eventually(t, "pods of "+j.Name, func(g gomega.Gomega) {
		pods = podsOf(g, t, j)["node"]
		g.Expect(pods).To(gomega.HaveLen(2))
	})
	for rank, pod := range pods {
		if want := fmt.Sprintf("toy-train-node-0-%d.toy-train", rank); host(pod) != want {
			t.Errorf("rank %d is %s, want %s", rank, host(pod), want)
		}
		values := env(pod)
		for name, want := range map[string]string{
			"PET_NNODES": "2", "PET_NODE_RANK": fmt.Sprint(rank), "PET_NPROC_PER_NODE": "1",
			"PET_MASTER_ADDR": "toy-train-node-0-0.toy-train", "PET_MASTER_PORT": "29500",
		} {
			if values[name] != want {
				t.Errorf("rank %d has %s=%q, want %q", rank, name, values[name], want)
			}
		}
		// The arguments name this label by its field path.
		if name := pod.Labels["jobset.sigs.k8s.io/jobset-name"]; name != "toy-train" {
			t.Errorf("rank %d writes its checkpoints for %q", rank, name)
		}
	}
	eventually(t, j.Name+" to complete", func(g gomega.Gomega) {
		g.Expect(conditionsOf(g, t, j)).To(gomega.Equal("Complete=True"))
	})
}
