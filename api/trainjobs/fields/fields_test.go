// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

var releases = []string{clusters.Trainer20, clusters.Trainer21, clusters.Trainer22, clusters.Trainer23}

// schemaOf reads the schema of a CRD of a release, as an API server publishes it.
func schemaOf(t *testing.T, release, plural string) *fields.Schema {
	t.Helper()
	document, kind, err := clusters.ReleaseDocument(t.Context(), release, plural)
	check.Must(t, err)
	specs, err := fields.Read(bytes.NewReader(document), kind)
	check.Must(t, err)
	return specs[kind]
}

// What a worker of one release lacks of what a hub of another release knows: these are all differences of the TrainJobs of
// two releases, also in types.
func TestMissing(t *testing.T) {
	const (
		numProc = "trainer.numProcPerNode (string)"
		keyRefs = "initializer.dataset.env.valueFrom.fileKeyRef initializer.model.env.valueFrom.fileKeyRef trainer.env.valueFrom.fileKeyRef"
		grace   = "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec.terminationGracePeriodSeconds"
	)
	want := map[string]map[string]string{ // By hub, then by worker.
		clusters.Trainer20: {
			clusters.Trainer21: "podSpecOverrides",
			clusters.Trainer22: "annotations labels podSpecOverrides " + numProc,
			clusters.Trainer23: "annotations labels podSpecOverrides " + numProc,
		},
		clusters.Trainer21: {
			clusters.Trainer20: "podTemplateOverrides " + keyRefs,
			clusters.Trainer22: "annotations labels podTemplateOverrides " + numProc,
			clusters.Trainer23: "annotations labels podTemplateOverrides " + numProc,
		},
		clusters.Trainer22: {
			clusters.Trainer20: "activeDeadlineSeconds runtimePatches " + keyRefs,
			clusters.Trainer21: "activeDeadlineSeconds runtimePatches",
		},
		clusters.Trainer23: {
			clusters.Trainer20: "activeDeadlineSeconds runtimePatches " + keyRefs,
			clusters.Trainer21: "activeDeadlineSeconds runtimePatches",
			clusters.Trainer22: grace,
		},
	}
	for _, hub := range releases {
		for _, worker := range releases {
			missing := schemaOf(t, hub, "trainjobs").Missing(schemaOf(t, worker, "trainjobs"))
			if !slices.IsSorted(missing) {
				t.Errorf("hub %s, worker %s: %q is not sorted", hub, worker, missing)
			}
			words := strings.Fields(strings.ReplaceAll(want[hub][worker], " (", "#("))
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "#(", " (")
			}
			slices.Sort(words)
			check.Diff(t, strings.Join(words, "\n"), strings.Join(missing, "\n"), "hub "+hub+", worker "+worker)
		}
	}
	onRuntimes := schemaOf(t, clusters.Trainer23, "trainingruntimes").Missing(schemaOf(t, clusters.Trainer22, "trainingruntimes"))
	check.Diff(t, []string{
		"mlPolicy.torch.envInjection", "template.spec.replicatedJobs.template.spec.template.spec.schedulingGroup",
	}, onRuntimes, "runtimes of 2.2")
}

func TestRelease(t *testing.T) {
	var found []string
	for _, release := range releases {
		found = append(found, fields.Release(schemaOf(t, release, "trainjobs")))
	}
	check.Diff(t, []string{"2.0", "2.1", "2.2", "2.3"}, found, "releases")
	check.Equal(t, "", fields.Release(nil), "the release of a worker without a schema")
	lag, known := fields.Lag("2.0", "2.3")
	check.Diff(t, []any{3, true}, []any{lag, known}, "2.0 behind 2.3")
	lag, known = fields.Lag("2.3", "2.2")
	check.Diff(t, []any{-1, true}, []any{lag, known}, "2.3 behind 2.2")
	if _, known := fields.Lag("", "2.3"); known {
		t.Error("an unknown release has a distance")
	}
}

func TestUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		object  map[string]any
		missing []string
		want    []string
	}{
		"Below":      {object: map[string]any{"runtimePatches": []any{map[string]any{"manager": "a"}}}, missing: []string{"runtimePatches"}, want: []string{"runtimePatches"}},
		"Scalar":     {object: map[string]any{"activeDeadlineSeconds": int64(5)}, missing: []string{"activeDeadlineSeconds"}, want: []string{"activeDeadlineSeconds"}},
		"Empty":      {object: map[string]any{"trainer": map[string]any{}, "a": []any{}}, missing: []string{"a", "trainer"}, want: []string{"a", "trainer"}},
		"Null":       {object: map[string]any{"trainer": nil}, missing: []string{"trainer"}},
		"LongerName": {object: map[string]any{"trainerX": int64(1)}, missing: []string{"trainer"}},
		"Above":      {object: map[string]any{"trainer": map[string]any{"image": "a"}}, missing: []string{"trainer.env"}},
		"Type": {
			object:  map[string]any{"trainer": map[string]any{"numProcPerNode": "auto"}},
			missing: []string{"trainer.numProcPerNode (string)"}, want: []string{"trainer.numProcPerNode (string)"},
		},
		"OtherType": {object: map[string]any{"trainer": map[string]any{"numProcPerNode": int64(2)}}, missing: []string{"trainer.numProcPerNode (string)"}},
		"InList": {
			object:  map[string]any{"env": []any{map[string]any{"name": "a"}, map[string]any{"valueFrom": map[string]any{"fileKeyRef": map[string]any{"key": "k"}}}}},
			missing: []string{"env.valueFrom.fileKeyRef"}, want: []string{"env.valueFrom.fileKeyRef"},
		},
		"KeysOfMaps": {object: map[string]any{"labels": map[string]any{"example.com/x": "y"}}, missing: []string{"labels"}, want: []string{"labels"}},
	} {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, tc.want, fields.Unknown(fields.Of(tc.object), tc.missing), "unknown fields")
		})
	}
}

// A forged document costs no memory: it is read as a stream, up to a limit.
func TestHugeSchema(t *testing.T) {
	deep := strings.Repeat(`{"properties":{"a":`, 100) + "{}" + strings.Repeat("}}", 100)
	wide := `{"properties":{"a":{"properties":{` + strings.Repeat(`"x":{},`, 200_000) + `"x":{}}}}}`
	for name, schema := range map[string]string{"Deep": deep, "Wide": wide} {
		document := `{"components":{"schemas":{"x.TrainJob":{"properties":{"spec":` + schema + `}}}}}`
		if _, err := fields.Read(strings.NewReader(document), "TrainJob"); !errors.Is(err, fields.ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		}
	}
	for _, broken := range []string{"", "[]", `{"components":[]}`, `{"components":{"schemas":{"x.TrainJob":{"properties":{"spec":{"properties":[]}}}}}}`} {
		if _, err := fields.Read(strings.NewReader(broken), "TrainJob"); err == nil {
			t.Errorf("%q is read without an error", broken)
		}
	}
	specs, err := fields.Read(strings.NewReader(`{"components":{"schemas":{"x.Other":{"properties":{"spec":{}}}}}}`), "TrainJob")
	check.Must(t, err)
	check.Diff(t, 0, len(specs), "kinds")
}
