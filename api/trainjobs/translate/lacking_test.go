// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// schemaOf reads the schema of TrainJobs of a release.
func schemaOf(t *testing.T, release string) *fields.Schema {
	t.Helper()
	document, kind, err := clusters.ReleaseDocument(t.Context(), release, "trainjobs")
	check.Must(t, err)
	specs, err := fields.Read(bytes.NewReader(document), kind)
	check.Must(t, err)
	return specs[kind]
}

// What a job of a hub with 2.3 may not use on a worker of each release, with translation: this is the whole list.
func TestLacking(t *testing.T) {
	const (
		ofPatches = "runtimePatches.trainingRuntimeSpec.template."
		ofJobs    = ofPatches + "spec.replicatedJobs.template."
		ofPods    = ofJobs + "spec.template."
	)
	names := func(prefix string, names ...string) []string {
		for i := range names {
			names[i] = prefix + names[i]
		}
		return names
	}
	metadata := slices.Concat(
		names(ofPatches+"metadata.", "finalizers", "name", "namespace"),
		names(ofJobs, "metadata"),
		names(ofPods+"metadata.", "finalizers", "name", "namespace"),
	)
	ofPodSpec := names(ofPods+"spec.", "containers.securityContext", "initContainers.securityContext", "securityContext", "terminationGracePeriodSeconds")
	newIn21 := slices.Concat(
		names("", "initializer.dataset.env.valueFrom.fileKeyRef", "initializer.model.env.valueFrom.fileKeyRef", "trainer.env.valueFrom.fileKeyRef"),
		names(ofPods+"spec.", "containers.env.valueFrom.fileKeyRef", "initContainers.env.valueFrom.fileKeyRef", "volumes.projected.sources.podCertificate",
			"affinity", "imagePullSecrets"),
	)
	only20 := names(ofPods+"spec.", "nodeSelector.$patch", "containers"+translate.Twice, "initContainers"+translate.Twice,
		"schedulingGates"+translate.Twice, "volumes"+translate.Twice)
	metadata20 := slices.Concat(metadata[:4], names(ofPods, "metadata"))
	for release, want := range map[string][]string{
		clusters.Trainer20: slices.Concat([]string{"activeDeadlineSeconds"}, metadata20, ofPodSpec, newIn21, only20),
		clusters.Trainer21: slices.Concat([]string{"activeDeadlineSeconds"}, metadata, ofPodSpec,
			names(ofPods, "spec.volumes.projected.sources.podCertificate.userAnnotations")),
		clusters.Trainer22: names(ofPods, "spec.terminationGracePeriodSeconds"),
		clusters.Trainer23: nil,
	} {
		slices.Sort(want)
		lacking := translate.Lacking(schemaOf(t, clusters.Trainer23), schemaOf(t, release))
		check.Diff(t, strings.Join(want, "\n"), strings.Join(lacking, "\n"), release)
		for _, field := range lacking {
			if len(field) > 253 {
				t.Errorf("%s is too long for the status of a WorkerCluster", field)
			}
		}
		check.Equal(t, true, len(lacking) <= 64, "%s: the status has room for 64 fields", release)
	}
}

// Of each field of the hub's runtimePatches, a worker gets what it knows, or is told which field it lacks.
func TestEveryField(t *testing.T) {
	hub := schemaOf(t, clusters.Trainer23)
	count := 0
	for _, release := range []string{clusters.Trainer20, clusters.Trainer21} {
		worker := schemaOf(t, release)
		lacking, into := translate.Lacking(hub, worker), translate.Into(worker.Names())
		for _, leaf := range leaves(hub.At(translate.Patches), nil) {
			count++
			spec := map[string]any{translate.Patches: []any{nested(leaf)}}
			path := translate.Patches + "." + strings.Join(leaf, ".")
			if len(fields.Unknown(translate.Fields(spec), lacking)) > 0 {
				continue
			}
			translated, err := translate.Spec(spec, into)
			if err != nil {
				t.Errorf("%s: %s is not lacking: %v", release, path, err)
				continue
			}
			for _, field := range fields.Of(translated) {
				field, _, _ = strings.Cut(field, " (")
				if !worker.Has(strings.TrimSuffix(field, ".key")) { // A key of labels is free.
					t.Errorf("%s: %s becomes %s, which the worker does not know", release, path, field)
				}
			}
			said := strings.Contains(strings.Join(fields.Of(translated), " "), leaf[len(leaf)-1])
			if structural := slices.Contains([]string{"manager", "time", "name"}, leaf[len(leaf)-1]); !said && !structural {
				t.Errorf("%s: %s is gone: %v", release, path, translated)
			}
		}
	}
	if count < 500 {
		t.Errorf("only %d fields are tried", count)
	}
}

// leaves are the paths of the fields without fields.
func leaves(schema *fields.Schema, above []string) (paths [][]string) {
	for _, name := range schema.Names() {
		path := append(slices.Clone(above), name)
		if below := leaves(schema.Field(name), path); len(below) > 0 {
			paths = append(paths, below...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}

// nested is an object with a value at a path. Replicated jobs are a list.
func nested(path []string) map[string]any {
	if len(path) == 1 {
		switch path[0] {
		case "labels", "annotations", "nodeSelector":
			return map[string]any{path[0]: map[string]any{"key": "value"}}
		}
		return map[string]any{path[0]: "value"}
	}
	if path[0] == "replicatedJobs" {
		job := nested(path[1:])
		job["name"] = "node"
		return map[string]any{path[0]: []any{job}}
	}
	return map[string]any{path[0]: nested(path[1:])}
}

func TestInto(t *testing.T) {
	for release, want := range map[string]v1alpha1.PatchesField{
		clusters.Trainer20: v1alpha1.PodSpecOverrides, clusters.Trainer21: v1alpha1.PodTemplateOverrides, clusters.Trainer22: "", clusters.Trainer23: "",
	} {
		check.Equal(t, want, translate.Into(schemaOf(t, release).Names()), "%s", release)
	}
	check.Equal(t, "", translate.Into(nil), "a worker that does not publish its fields")
}
