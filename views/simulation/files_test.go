// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const trainJob = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"

func read(texts ...string) (*Files, error) {
	return Parse("standard input", strings.NewReader(strings.Join(texts, "\n---\n")))
}

func TestWhatIsTaken(t *testing.T) {
	objects, err := read(
		trainJob+"metadata: {name: a, managedFields: [{new: 1}]}\nstatus: {written: by a newer version}",
		"apiVersion: trainyard.dev/v1alpha1\nkind: WorkerClusterList\nitems:\n- {apiVersion: trainyard.dev/v1alpha1, kind: WorkerCluster, metadata: {name: w}}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}")
	check.Must(t, err)
	if jobs, at := Of[*trainer.TrainJob](objects); len(jobs) != 1 || at[0] != `standard input (TrainJob "a")` {
		t.Errorf("jobs %v at %v, want one", jobs, at)
	}
	if workers, _ := Of[*v1alpha1.WorkerCluster](objects); len(workers) != 1 {
		t.Errorf("workers %v, want the one of the list", workers)
	}
	if len(objects.Ignored) != 1 || !strings.Contains(objects.Ignored[0], `standard input: ConfigMap "c" of v1 is ignored, because it does not matter for the decision`) {
		t.Errorf("Ignored = %q, want the ConfigMap", objects.Ignored)
	}
	if twice, _ := read(trainJob+"metadata: {name: a}", trainJob+"metadata: {name: a}"); twice.duplicates() == nil || !strings.Contains(twice.duplicates().Error(), "standard input (TrainJob \"a\") already") {
		t.Errorf("duplicates() = %v, want the second", twice.duplicates())
	}
	if named, _ := read(trainJob+"metadata: {generateName: a-}", trainJob+"metadata: {generateName: a-}"); named.duplicates() != nil {
		t.Errorf("duplicates() = %v, want none: they get names of their own", named.duplicates())
	}
}

func TestLayers(t *testing.T) {
	behind, err := read("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {from: hub}}", "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}")
	check.Must(t, err)
	front, err := read("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {from: file}}", trainJob+"metadata: {name: a}")
	check.Must(t, err)
	both := front.over(behind.over(nil))
	var list corev1.NamespaceList
	check.Must(t, both.List(t.Context(), &list))
	if len(list.Items) != 2 || list.Items[0].Labels["from"] != "file" || list.Items[1].Name != "b" {
		t.Errorf("List() = %v, want a of the file and b of the hub", list.Items)
	}
	var namespace corev1.Namespace
	if err := both.Get(t.Context(), types.NamespacedName{Name: "a"}, &namespace); err != nil || namespace.Labels["from"] != "file" {
		t.Errorf("Get(a) = %v, %v; want that of the file", namespace.Labels, err)
	}
	namespace.Labels["from"] = "a reader"
	if again := (&corev1.Namespace{}); both.Get(t.Context(), types.NamespacedName{Name: "a"}, again) != nil || again.Labels["from"] != "file" {
		t.Error("what a reader does to an object shows")
	}
	check.Equal(t, nil, both.Get(t.Context(), types.NamespacedName{Name: "b"}, &namespace),
		"Get(b): want that of the hub")
	if err := both.Get(t.Context(), types.NamespacedName{Name: "c"}, &namespace); !apierrors.IsNotFound(err) {
		t.Errorf("Get(c) = %v, want that it is not found", err)
	}
}

func TestNamespaces(t *testing.T) {
	objects, err := read(trainJob+"metadata: {name: a}", trainJob+"metadata: {name: b, namespace: theirs}", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}")
	check.Must(t, err)
	check.Must(t, objects.SetNamespace("mine", false))
	jobs, _ := Of[*trainer.TrainJob](objects)
	if jobs[0].Namespace != "mine" || jobs[1].Namespace != "theirs" {
		t.Errorf("namespaces %q and %q, want the default where there is none", jobs[0].Namespace, jobs[1].Namespace)
	}
	const want = `the namespace from the provided object "theirs" does not match the namespace "mine"`
	if err := objects.SetNamespace("mine", true); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("SetNamespace() = %v, want %q", err, want)
	}
}
