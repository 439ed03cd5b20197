// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/check"
)

func TestDigest(t *testing.T) {
	newJob := func() *unstructured.Unstructured {
		job := New()
		job.SetName("job")
		job.SetLabels(map[string]string{"team": "a"})
		job.Object["spec"] = map[string]any{
			"managedBy": "x/y", "suspend": false, "runtimeRef": map[string]any{"name": "torch"},
			"trainer": map[string]any{"numNodes": int64(2)},
		}
		return job
	}
	spec := func(job *unstructured.Unstructured) map[string]any { return job.Object["spec"].(map[string]any) }
	for name, tc := range map[string]struct {
		reason string
		change func(*unstructured.Unstructured)
		counts bool
	}{
		"Suspended": {reason: "a job is stopped and started", change: func(job *unstructured.Unstructured) { spec(job)["suspend"] = true }},
		"NoSuspend": {reason: "absent is false", change: func(job *unstructured.Unstructured) { delete(spec(job), "suspend") }},
		"Kueue": {reason: "the hub's Kueue resumes it", change: func(job *unstructured.Unstructured) {
			spec(job)["runtimePatches"] = []any{map[string]any{"manager": KueueManager, "time": "now"}}
		}},
		"Annotation": {reason: "no copy is refused or counted by it", change: func(job *unstructured.Unstructured) {
			job.SetAnnotations(map[string]string{"note": "x"})
		}},
		"Status":     {reason: "it is the copy's", change: func(job *unstructured.Unstructured) { job.Object["status"] = map[string]any{} }},
		"Generation": {reason: "it grows with each suspension", change: func(job *unstructured.Unstructured) { job.SetGeneration(7) }},
		"Nodes": {reason: "the demand", counts: true, change: func(job *unstructured.Unstructured) {
			spec(job)["trainer"] = map[string]any{"numNodes": int64(64)}
		}},
		"Patches": {reason: "a PriorityClass, for example", counts: true, change: func(job *unstructured.Unstructured) {
			spec(job)["runtimePatches"] = []any{map[string]any{"manager": "me"}}
		}},
		"Label": {reason: "the policy and the class of a Workload", counts: true, change: func(job *unstructured.Unstructured) {
			job.SetLabels(map[string]string{"team": "b"})
		}},
		"OfTomorrow": {reason: "a field that the Go type does not know", counts: true, change: func(job *unstructured.Unstructured) {
			spec(job)["ofTomorrow"] = "x"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := newJob()
			after := newJob()
			tc.change(after)
			check.Equal(t, tc.counts, Digest(before) != Digest(after), "%s: the digest has changed", tc.reason)
		})
	}
	job := newJob()
	spec(job)["runtimePatches"] = []any{map[string]any{"manager": KueueManager}, map[string]any{"manager": "me"}}
	before := job.DeepCopy()
	Digest(job)
	check.Equal(t, len(spec(before)["runtimePatches"].([]any)), len(spec(job)["runtimePatches"].([]any)),
		"Digest has changed its argument: runtimePatches")
}
