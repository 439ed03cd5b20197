// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/check"
)

func TestDifferences(t *testing.T) {
	const base = `{template: {spec: {replicatedJobs: [{name: node, replicas: 1, template: {spec: {containers: [{name: node, image: a, resources: {requests: {cpu: "1", nvidia.com/gpu: 8}}}]}}}]}}}`
	for name, tc := range map[string]struct {
		reason string
		a, b   string
		want   []string
	}{
		"Equal":    {reason: "nothing differs", a: base, b: base},
		"KeyOrder": {reason: "the order of keys says nothing", a: `{a: 1, b: {c: 2, d: 3}}`, b: `{b: {d: 3, c: 2}, a: 1}`},
		"Scalar":   {reason: "the path leads to the value", a: `{a: {b: 1}}`, b: `{a: {b: 2}}`, want: []string{"spec.a.b"}},
		"Added":    {reason: "a field that one side lacks", a: `{a: {}}`, b: `{a: {b: {c: 2}}}`, want: []string{"spec.a.b"}},
		"List": {
			reason: "an element that one side lacks", a: `{env: [{name: A}]}`, b: `{env: [{name: A}, {name: B}]}`, want: []string{"spec.env[1]"},
		},
		"ListOrder": {reason: "the order of a list counts", a: `{args: [x, y]}`, b: `{args: [y, x]}`, want: []string{"spec.args[0]", "spec.args[1]"}},
		"Amounts": {
			reason: "notations of amounts",
			a:      `{resources: {requests: {cpu: "1000m", nvidia.com/gpu: "8", memory: 1Gi}}}`,
			b:      `{resources: {requests: {cpu: 1, nvidia.com/gpu: 8, memory: 1024Mi}}}`,
		},
		"OtherAmount": {
			reason: "another amount, of a resource with a point in its name", a: `{resources: {limits: {nvidia.com/gpu: 8}}}`,
			b: `{resources: {limits: {nvidia.com/gpu: 4}}}`, want: []string{"spec.resources.limits['nvidia.com/gpu']"},
		},
		"NoAmount":  {reason: "text that looks like an amount elsewhere", a: `{env: {value: "1000m"}}`, b: `{env: {value: "1"}}`, want: []string{"spec.env.value"}},
		"Empty":     {reason: "what a Go client writes", a: `{resources: {}, metadata: {creationTimestamp: null}, env: []}`, b: `{metadata: {}}`},
		"EmptyDir":  {reason: "an empty object that says something", a: `{volumes: [{name: a, emptyDir: {}}]}`, b: `{volumes: [{name: a}]}`, want: []string{"spec.volumes[0].emptyDir"}},
		"Kinds":     {reason: "another type of value", a: `{a: {b: 1}}`, b: `{a: [1]}`, want: []string{"spec.a"}},
		"TTL":       {reason: "the TTL of the JobSet is dropped in what the hub brings", a: `{template: {spec: {ttlSecondsAfterFinished: 60, suspend: true}}}`, b: `{template: {spec: {suspend: true}}}`},
		"OtherTTL":  {reason: "the TTL of a Job is not", a: `{template: {spec: {replicatedJobs: [{ttlSecondsAfterFinished: 60}]}}}`, b: `{template: {spec: {replicatedJobs: [{}]}}}`, want: []string{"spec.template.spec.replicatedJobs[0].ttlSecondsAfterFinished"}},
		"BothWays":  {reason: "sorted, from both sides", a: `{b: 1, c: 1}`, b: `{a: 1, c: 2}`, want: []string{"spec.a", "spec.b", "spec.c"}},
		"Whole":     {reason: "no spec at all", a: `null`, b: `{a: 1}`, want: []string{"spec"}},
		"FloatsToo": {reason: "numbers of two kinds", a: `{a: 1}`, b: `{a: 1.0}`},
	} {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, tc.want, differences(parsed(t, tc.a), parsed(t, tc.b)), tc.reason)
			check.Diff(t, tc.want, differences(parsed(t, tc.b), parsed(t, tc.a)), tc.reason+", the other way")
		})
	}
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	var value any
	check.Must(t, yaml.Unmarshal([]byte(text), &value))
	return value
}
