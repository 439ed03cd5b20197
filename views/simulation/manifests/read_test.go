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

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/simulation"
	"github.com/trainyard/trainyard/views/simulation/manifests"
)

const trainJob = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"

func read(texts ...string) (*simulation.Files, error) {
	return manifests.Read(strings.NewReader(strings.Join(texts, "\n---\n")), "-")
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

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": trainJob + "metadata: {name: b}", "a.json": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "c.txt": "nothing"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	objects, err := manifests.Read(nil, dir)
	check.Must(t, err)
	jobs, _ := simulation.Of[*trainer.TrainJob](objects)
	if namespaces, _ := simulation.Of[*corev1.Namespace](objects); len(jobs) != 1 || len(namespaces) != 1 {
		t.Errorf("%d jobs and %d namespaces, want one of each from the two files that are Kubernetes'", len(jobs), len(namespaces))
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "does not exist", t.TempDir(): "recognized file extensions are [.json .yaml .yml]",
	} {
		if _, err := manifests.Read(nil, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%s) = %v, want %q", path, err, want)
		}
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
				objects, err := manifests.Read(strings.NewReader(stdin), from)
				if err != nil {
					t.Errorf("read %s: %v", from, err)
					continue
				}
				jobs, at := simulation.Of[*trainer.TrainJob](objects)
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
