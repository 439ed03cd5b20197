// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

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
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const trainJob = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"

func read(texts ...string) (*Files, error) {
	return Read(strings.NewReader(strings.Join(texts, "\n---\n")), "-")
}

func TestFaults(t *testing.T) {
	tests := map[string]struct {
		reason string
		text   string
		want   string
	}{
		"Field": {
			reason: "a field that there is not", text: trainJob + "metadata: {name: a}\nspec: {trainer: {numNode: 1}}",
			want: `standard input (TrainJob "a"): strict decoding error: unknown field "spec.trainer.numNode"`,
		},
		"Fields": {
			reason: "all fields that there are not",
			text:   trainJob + "metadata: {name: a}\nspec: {trainer: {env: [{name: a, valu: b}, {nam: c}]}}",
			want:   `unknown field "spec.trainer.env[0].valu", unknown field "spec.trainer.env[1].nam"`,
		},
		"Type": {
			reason: "a value of another type", text: trainJob + "metadata: {name: a}\nspec: {trainer: {numNodes: four}}",
			want: `standard input (TrainJob "a"): spec.trainer.numNodes: it is a string, not int32`,
		},
		"Kind": {
			reason: "a kind of the group that there is not", text: strings.Replace(trainJob, "TrainJob", "Trainjob", 1),
			want: `standard input: there is no kind "Trainjob" in trainer.kubeflow.org/v1alpha1; there are trainer.kubeflow.org/v1alpha1 ` +
				`TrainJob, trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime, trainer.kubeflow.org/v1alpha1 TrainingRuntime`,
		},
		"Version": {
			reason: "another version", text: strings.Replace(trainJob, "v1alpha1", "v1", 1),
			want: `there is no kind "TrainJob" in trainer.kubeflow.org/v1; there are trainer.kubeflow.org/v1alpha1 TrainJob`,
		},
		"NoKind": {reason: "an object says what it is", text: "apiVersion: v1", want: `read standard input: unable to decode "standard input": Object 'Kind' is missing`},
		"NoVersion": {
			reason: "and in which version", text: "kind: TrainJob\nmetadata: {name: a}",
			want: `standard input (TrainJob "a"): it has no apiVersion`,
		},
		"NoName":   {reason: "and has a name", text: trainJob, want: "metadata.name: it is required"},
		"Syntax":   {reason: "no YAML", text: "a: [", want: "standard input: error converting YAML to JSON: yaml: line 1: did not find"},
		"NoObject": {reason: "YAML, and no object", text: "hello", want: `unable to decode "standard input"`},
		"Norway": {
			reason: "YAML has more words for false than one thinks", text: "apiVersion: v1\nkind: Namespace\nmetadata: {name: no}",
			want: `"standard input": json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.name of type string`,
		},
		"Item": {
			reason: "items of a list",
			text:   "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}, {kind: X}]",
			want:   `read standard input: unable to get type info from the object`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := read(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Read() = %v, want one line with %q: %s", err, tc.want, tc.reason)
			}
		})
	}
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

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": trainJob + "metadata: {name: b}", "a.json": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "c.txt": "nothing"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	objects, err := Read(nil, dir)
	check.Must(t, err)
	jobs, _ := Of[*trainer.TrainJob](objects)
	if namespaces, _ := Of[*corev1.Namespace](objects); len(jobs) != 1 || len(namespaces) != 1 {
		t.Errorf("%d jobs and %d namespaces, want one of each from the two files that are Kubernetes'", len(jobs), len(namespaces))
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "does not exist", t.TempDir(): "recognized file extensions are [.json .yaml .yml]",
	} {
		if _, err := Read(nil, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%s) = %v, want %q", path, err, want)
		}
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

// What kubectl reads: text in UTF-16 with a byte order mark, and JSON values that follow each other.
func TestWhatKubectlReads(t *testing.T) {
	const two = trainJob + "metadata: {name: a}\n---\n" + trainJob + "metadata: {name: ä}\n"
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
			for from, stdin := range map[string]string{file: "", "-": text} {
				objects, err := Read(strings.NewReader(stdin), from)
				if err != nil {
					t.Errorf("read %s: %v", from, err)
					continue
				}
				jobs, at := Of[*trainer.TrainJob](objects)
				if len(jobs) != 2 || jobs[0].Name != "a" || jobs[1].Name != "ä" {
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
