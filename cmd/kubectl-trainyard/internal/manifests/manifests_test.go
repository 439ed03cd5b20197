// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/cluster"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/manifests"
	"github.com/trainyard/trainyard/test/check"
)

var kinds = []schema.GroupVersionKind{
	trainer.SchemeGroupVersion.WithKind("TrainJob"), trainer.SchemeGroupVersion.WithKind("ClusterTrainingRuntime"),
	v1alpha1.GroupVersion.WithKind("WorkerCluster"), v1alpha1.GroupVersion.WithKind("DispatchPolicy"), corev1.SchemeGroupVersion.WithKind("Namespace"),
}

const job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"

func read(texts ...string) (*manifests.Objects, error) {
	return manifests.Read(cluster.Scheme(), kinds, strings.NewReader(strings.Join(texts, "\n---\n")), "-")
}

func TestFaults(t *testing.T) {
	tests := map[string]struct {
		reason string
		text   string
		want   []string
	}{
		"Field": {
			reason: "a field that there is not", text: job + "metadata: {name: a}\nspec: {trainer: {numNode: 1}}",
			want: []string{`document 1 (TrainJob "a"): unknown field "spec.trainer.numNode" (did you mean "numNodes"?)`},
		},
		"InList": {
			reason: "lists and embedded structs are gone through",
			text:   job + "metadata: {name: a}\nspec: {trainer: {env: [{name: a, valu: b}, {nam: c}]}}",
			want:   []string{`"spec.trainer.env[0].valu" (did you mean "value"?)`, `"spec.trainer.env[1].nam" (did you mean "name"?)`},
		},
		"Far":      {reason: "nothing is proposed that is not near", text: job + "metadata: {name: a}\nspec: {zzzzzzzz: 1}", want: []string{`unknown field "spec.zzzzzzzz"`}},
		"Type":     {reason: "a value of another type", text: job + "metadata: {name: a}\nspec: {trainer: {numNodes: four}}", want: []string{`spec.trainer.numNodes: it is a string, and has to be a number`}},
		"Kind":     {reason: "a kind of the group that there is not", text: strings.Replace(job, "TrainJob", "Trainjob", 1), want: []string{`there is no kind "Trainjob" in trainer.kubeflow.org/v1alpha1 (did you mean "TrainJob"?)`}},
		"FarKind":  {reason: "with none that is near, all are told", text: strings.Replace(job, "TrainJob", "Epoch", 1), want: []string{`there are TrainJob, ClusterTrainingRuntime`}},
		"Version":  {reason: "another version", text: strings.Replace(job, "v1alpha1", "v1", 1), want: []string{`did you mean trainer.kubeflow.org/v1alpha1?`}},
		"NoKind":   {reason: "an object says what it is", text: "apiVersion: v1", want: []string{"document 1: it has no kind"}},
		"NoName":   {reason: "and has a name", text: job, want: []string{"metadata.name: it is required"}},
		"Syntax":   {reason: "no YAML", text: "a: [", want: []string{"document 1: line 1: did not find expected node content"}},
		"NoObject": {reason: "YAML, and no object", text: "hello", want: []string{"document 1: it is not a Kubernetes object"}},
		"Norway":   {reason: "YAML has more words for false than one thinks", text: "apiVersion: v1\nkind: Namespace\nmetadata: {name: no}", want: []string{"metadata.name: it is a bool, and has to be a string"}},
		"Twice":    {reason: "a field twice", text: job + "metadata: {name: a, name: b}", want: []string{`key "name" already set`}},
		"Number":   {reason: "documents are counted, without empty ones", text: "# a comment\n---\n" + job + "metadata: {name: a}\n---\n---\nkind: X", want: []string{"document 2: it has no apiVersion"}},
		"Item":     {reason: "items of a list too", text: "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}, {kind: X}]", want: []string{"document 1, item 2: it has no apiVersion"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := read(tc.text)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Read() = %v, want %q: %s", err, want, tc.reason)
				}
			}
			if err != nil && strings.Count(err.Error(), "\n") != len(tc.want)-1 {
				t.Errorf("Read() = %v, want %d lines", err, len(tc.want))
			}
		})
	}
}

func TestWhatIsTaken(t *testing.T) {
	objects, err := read(
		job+"metadata: {name: a, managedFields: [{new: 1}]}\nstatus: {written: by a newer version}",
		"apiVersion: trainyard.dev/v1alpha1\nkind: WorkerClusterList\nitems:\n- {apiVersion: trainyard.dev/v1alpha1, kind: WorkerCluster, metadata: {name: w}}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}")
	check.Must(t, err)
	if jobs, at := manifests.Of[*trainer.TrainJob](objects); len(jobs) != 1 || at[0] != `standard input: document 1 (TrainJob "a")` {
		t.Errorf("jobs %v at %v, want one", jobs, at)
	}
	if workers, _ := manifests.Of[*v1alpha1.WorkerCluster](objects); len(workers) != 1 {
		t.Errorf("workers %v, want the one of the list", workers)
	}
	if len(objects.Ignored) != 1 || !strings.Contains(objects.Ignored[0], `document 3: ConfigMap "c" of v1 is ignored, because it does not matter for the decision`) {
		t.Errorf("Ignored = %q, want the ConfigMap", objects.Ignored)
	}
	if twice, _ := read(job+"metadata: {name: a}", job+"metadata: {name: a}"); twice.Duplicates() == nil || !strings.Contains(twice.Duplicates().Error(), "document 2") {
		t.Errorf("Duplicates() = %v, want the second", twice.Duplicates())
	}
	if named, _ := read(job+"metadata: {generateName: a-}", job+"metadata: {generateName: a-}"); named.Duplicates() != nil {
		t.Errorf("Duplicates() = %v, want none: they get names of their own", named.Duplicates())
	}
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": job + "metadata: {name: b}", "a.json": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "c.txt": "nothing"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	objects, err := manifests.Read(cluster.Scheme(), kinds, nil, dir)
	check.Must(t, err)
	jobs, _ := manifests.Of[*trainer.TrainJob](objects)
	if namespaces, _ := manifests.Of[*corev1.Namespace](objects); len(jobs) != 1 || len(namespaces) != 1 {
		t.Errorf("%d jobs and %d namespaces, want one of each from the two files that are Kubernetes'", len(jobs), len(namespaces))
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "does not exist", t.TempDir(): "has no files that end with .json, .yaml or .yml",
	} {
		if _, err := manifests.Read(cluster.Scheme(), kinds, nil, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%s) = %v, want %q", path, err, want)
		}
	}
}

func TestLayers(t *testing.T) {
	behind, err := read("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {from: hub}}", "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}")
	check.Must(t, err)
	front, err := read("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {from: file}}", job+"metadata: {name: a}")
	check.Must(t, err)
	both := front.Over(behind.Over(nil))
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
	if err := both.Get(t.Context(), types.NamespacedName{Name: "b"}, &namespace); err != nil {
		t.Errorf("Get(b) = %v, want that of the hub", err)
	}
	if err := both.Get(t.Context(), types.NamespacedName{Name: "c"}, &namespace); !apierrors.IsNotFound(err) {
		t.Errorf("Get(c) = %v, want that it is not found", err)
	}
}

// What kubectl reads: text in UTF-16 with a byte order mark, and JSON values that follow each other.
func TestWhatKubectlReads(t *testing.T) {
	const two = job + "metadata: {name: a}\n---\n" + job + "metadata: {name: ä}\n"
	const jsons = `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"a"}}
{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"ä"}}`
	for name, text := range map[string]string{
		"UTF8":         two,
		"UTF8Mark":     "\ufeff" + two,
		"LittleEndian": utf16Text(binary.LittleEndian, two),
		"BigEndian":    utf16Text(binary.BigEndian, two),
		"JSON":         jsons,
		"JSONUTF16":    utf16Text(binary.LittleEndian, jsons),
		"JSONThenYAML": strings.Replace(jsons, "\n", "\n---\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "jobs.yaml")
			check.Must(t, os.WriteFile(file, []byte(text), 0o600))
			for from, stdin := range map[string]string{file: "", manifests.Stdin: text} {
				objects, err := manifests.Read(cluster.Scheme(), kinds, strings.NewReader(stdin), from)
				if err != nil {
					t.Errorf("read %s: %v", from, err)
					continue
				}
				jobs, at := manifests.Of[*trainer.TrainJob](objects)
				if len(jobs) != 2 || jobs[0].Name != "a" || jobs[1].Name != "ä" || !strings.Contains(at[1], "document 2") {
					t.Errorf("read %s: %d jobs at %q, want a and ä", from, len(jobs), at)
				}
			}
		})
	}
	if _, err := read(`{"apiVersion":"v1"} {"kind":"X"`); err == nil {
		t.Error("JSON that ends too early was read")
	}
}

// utf16Text is a text with a byte order mark, in UTF-16.
func utf16Text(order binary.AppendByteOrder, text string) string {
	var encoded []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		encoded = order.AppendUint16(encoded, unit)
	}
	return string(encoded)
}

func TestNamespaces(t *testing.T) {
	objects, err := read(job+"metadata: {name: a}", job+"metadata: {name: b, namespace: theirs}", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}")
	check.Must(t, err)
	check.Must(t, objects.SetNamespace("mine", false))
	jobs, _ := manifests.Of[*trainer.TrainJob](objects)
	if jobs[0].Namespace != "mine" || jobs[1].Namespace != "theirs" {
		t.Errorf("namespaces %q and %q, want the default where there is none", jobs[0].Namespace, jobs[1].Namespace)
	}
	const want = `the namespace from the provided object "theirs" does not match the namespace "mine"`
	if err := objects.SetNamespace("mine", true); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("SetNamespace() = %v, want %q", err, want)
	}
}
