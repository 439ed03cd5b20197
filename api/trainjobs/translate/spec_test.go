// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	fields := map[string]any{}
	check.Must(t, yaml.Unmarshal([]byte(text), &fields))
	return fields
}

// pods is an entry that says something of the pods of two replicated jobs.
const twoPatches = `
trainer: {numNodes: 2}
runtimePatches:
- manager: example.com/a
  time: "2026-01-01T00:00:00Z"
  trainingRuntimeSpec:
    template:
      metadata: {labels: {team: a, of: a}, annotations: {note: a}}
      spec:
        replicatedJobs:
        - name: node
          template: {spec: {template: {spec: {nodeSelector: {zone: a, rack: r}, tolerations: [{key: a}], serviceAccountName: a}}}}
        - name: launcher
          template: {spec: {template: {spec: {containers: [{name: x, volumeMounts: [{name: v, mountPath: /v}]}]}}}}
- manager: example.com/nothing
- manager: example.com/b
  trainingRuntimeSpec:
    template:
      metadata: {labels: {team: b}}
      spec:
        replicatedJobs:
        - name: node
          template: {spec: {template: {spec: {nodeSelector: {zone: b}, tolerations: [{key: b}], volumes: [{name: v, emptyDir: {}}]}}}}
        - name: other
`

func TestSpec(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		into   v1alpha1.PatchesField
		spec   string
		want   string
		field  string // of the error
	}{
		"2.1": {
			reason: "each patch of a replicated job is an entry, in the order of the patches", into: v1alpha1.PodTemplateOverrides, spec: twoPatches,
			want: `
trainer: {numNodes: 2}
labels: {team: b, of: a}
annotations: {note: a}
podTemplateOverrides:
- targetJobs: [{name: node}]
  spec: {nodeSelector: {zone: a, rack: r}, tolerations: [{key: a}], serviceAccountName: a}
- targetJobs: [{name: launcher}]
  spec: {containers: [{name: x, volumeMounts: [{name: v, mountPath: /v}]}]}
- targetJobs: [{name: node}]
  spec: {nodeSelector: {zone: b}, tolerations: [{key: b}], volumes: [{name: v, emptyDir: {}}]}
`,
		},
		"2.0": {
			reason: "a replicated job may be named once", into: v1alpha1.PodSpecOverrides, spec: twoPatches,
			want: `
trainer: {numNodes: 2}
labels: {team: b, of: a}
annotations: {note: a}
podSpecOverrides:
- targetJobs: [{name: node}]
  nodeSelector: {zone: b, rack: r}
  tolerations: [{key: b}]
  serviceAccountName: a
  volumes: [{name: v, emptyDir: {}}]
- targetJobs: [{name: launcher}]
  containers: [{name: x, volumeMounts: [{name: v, mountPath: /v}]}]
`,
		},
		"PodMetadata": {
			reason: "2.1 knows it", into: v1alpha1.PodTemplateOverrides,
			spec: patchOf(`{name: node, template: {spec: {template: {metadata: {labels: {a: b}, annotations: {c: d}, creationTimestamp: null}}}}}`),
			want: `{podTemplateOverrides: [{targetJobs: [{name: node}], metadata: {labels: {a: b}, annotations: {c: d}}}]}`,
		},
		"PodMetadata2.0": {
			reason: "2.0 does not", into: v1alpha1.PodSpecOverrides,
			spec:  patchOf(`{name: node, template: {spec: {template: {metadata: {labels: {a: b}}}}}}`),
			field: "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.metadata",
		},
		"JobMetadata": {
			reason: "no older release can do that", into: v1alpha1.PodTemplateOverrides,
			spec:  patchOf(`{name: node, template: {metadata: {labels: {a: b}}}}`),
			field: "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.metadata",
		},
		"Tomorrow": {
			reason: "a newer hub", into: v1alpha1.PodTemplateOverrides,
			spec:  patchOf(`{name: node, template: {spec: {backoffLimit: 3}}}`),
			field: "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.backoffLimit",
		},
		"Directive2.1": {
			reason: "an entry is taken as a patch is", into: v1alpha1.PodTemplateOverrides, spec: patchOf(pod(`{nodeSelector: {$patch: replace}}`)),
			want: `{podTemplateOverrides: [{targetJobs: [{name: node}], spec: {nodeSelector: {$patch: replace}}}]}`,
		},
		"Directive2.0": {
			reason: "merged with others, it would be another patch", into: v1alpha1.PodSpecOverrides, spec: patchOf(pod(`{nodeSelector: {$patch: replace}}`)),
			field: "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec.nodeSelector.$patch",
		},
		"ListTwice": {
			reason: "their order would depend on the runtime", into: v1alpha1.PodSpecOverrides,
			spec: `{runtimePatches: [` + entryOf(pod(`{containers: [{name: x}]}`)) + `, ` + entryOf(pod(`{containers: [{name: y}]}`)) + `]}`,
			field: "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec.containers" +
				" (in two patches of a replicated job)",
		},
		"Empty":   {reason: "nothing is said", into: v1alpha1.PodSpecOverrides, spec: patchOf(pod(`{}`)), want: `{}`},
		"Without": {reason: "nothing is translated", into: v1alpha1.PodSpecOverrides, spec: `{suspend: true}`, want: `{suspend: true}`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := object(t, tc.spec)
			before := runtime.DeepCopyJSON(spec)
			translated, err := translate.Spec(spec, tc.into)
			var untranslatable *translate.UntranslatableError
			if tc.field != "" {
				if !errors.As(err, &untranslatable) {
					t.Fatalf("%s: got %v, %v", tc.reason, translated, err)
				}
				check.Equal(t, tc.field, untranslatable.Field, "%s", tc.reason)
				return
			}
			check.Must(t, err)
			check.Diff(t, object(t, tc.want), translated, tc.reason)
			check.Diff(t, before, spec, "the spec is the cache's")
		})
	}
}

func pod(spec string) string {
	return `{name: node, template: {spec: {template: {spec: ` + spec + `}}}}`
}

func entryOf(job string) string {
	return `{manager: example.com/a, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [` + job + `]}}}}`
}

func patchOf(job string) string { return `{runtimePatches: [` + entryOf(job) + `]}` }
