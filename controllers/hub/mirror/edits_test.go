// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/test/check"
)

// An edit is something that somebody else has written or removed. Defaults and changes by the worker's admission are no
// edits.
func TestEditsOf(t *testing.T) {
	owner := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	patch := func(manager, node string) any { return map[string]any{"manager": manager, "node": node, "time": node} }
	nodes := map[string]any{"numNodes": int64(2), "args": []any{"a", "b"}}
	for name, test := range map[string]struct {
		reason             string
		wanted, found      map[string]any
		owners             []metav1.ManagedFieldsEntry
		queued, jobChanged bool
		want               []string
	}{
		"Same": {
			reason: "also if somebody has applied the same",
			wanted: map[string]any{"trainer": nodes}, found: map[string]any{"trainer": nodes},
			owners: []metav1.ManagedFieldsEntry{owner("argocd", `{"f:spec":{"f:trainer":{"f:numNodes":{}}}}`)},
		},
		"Default": {
			reason: "the worker's API server has a field with a default that the hub's does not know",
			wanted: map[string]any{"trainer": nodes}, found: map[string]any{"trainer": nodes, "new": "default"},
			owners: []metav1.ManagedFieldsEntry{owner("trainyard", `{"f:spec":{"f:new":{}}}`)},
		},
		"Admission": {
			reason: "the worker's admission has another image, and nobody owns what it writes",
			wanted: map[string]any{"trainer": map[string]any{"image": "a"}}, found: map[string]any{"trainer": map[string]any{"image": "mirror/a"}},
		},
		"Changed": {
			reason: "by hand", want: []string{"spec.trainer.numNodes"},
			wanted: map[string]any{"trainer": nodes}, found: map[string]any{"trainer": map[string]any{"numNodes": int64(9), "args": nodes["args"]}},
			owners: []metav1.ManagedFieldsEntry{owner("kubectl-edit", `{"f:spec":{"f:trainer":{"f:numNodes":{}}}}`)},
		},
		"Added": {
			reason: "as a whole", want: []string{"spec.trainer"},
			wanted: map[string]any{}, found: map[string]any{"trainer": nodes},
			owners: []metav1.ManagedFieldsEntry{owner("kubectl-edit", `{"f:spec":{"f:trainer":{".":{},"f:numNodes":{}}}}`)},
		},
		"AddedWithin": {
			reason: "to an object that its owner owns as one", want: []string{"spec.trainer.labels.a"},
			wanted: map[string]any{"trainer": map[string]any{"labels": map[string]any{}}},
			found:  map[string]any{"trainer": map[string]any{"labels": map[string]any{"a": "b"}}},
			owners: []metav1.ManagedFieldsEntry{owner("somebody", `{"f:spec":{"f:trainer":{"f:labels":{}}}}`)},
		},
		"Removed":                {reason: "nobody owns what is not there", want: []string{"spec.trainer"}, wanted: map[string]any{"trainer": nodes}, found: map[string]any{}},
		"RemovedFromAList":       {reason: "as little", want: []string{"spec.args"}, wanted: map[string]any{"args": []any{"a", "b"}}, found: map[string]any{"args": []any{"b"}}},
		"AnotherListOfTheWorker": {reason: "it is not a part of ours", wanted: map[string]any{"args": []any{"a", "b"}}, found: map[string]any{"args": []any{"c"}}},
		"StatusOnly": {
			reason: "whoever writes the status owns nothing here",
			wanted: map[string]any{"a": "1"}, found: map[string]any{"a": "2"},
			owners: []metav1.ManagedFieldsEntry{{Manager: "trainer", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:a":{}}}`)}},
		},
		"SuspendAndManager": {
			reason: "the one is looked at elsewhere, the other is immutable",
			wanted: map[string]any{"suspend": false, "managedBy": "a"}, found: map[string]any{"suspend": true, "managedBy": "b"},
			owners: []metav1.ManagedFieldsEntry{owner("kubectl-edit", `{"f:spec":{"f:suspend":{},"f:managedBy":{}}}`)},
		},
		"KueueInItsQueue": {
			reason: "it says where the pods go",
			wanted: map[string]any{}, found: map[string]any{"runtimePatches": []any{patch("kueue.x-k8s.io/manager", "gpu")}},
			owners: []metav1.ManagedFieldsEntry{owner("kueue", `{"f:spec":{"f:runtimePatches":{"k:{\"manager\":\"kueue.x-k8s.io/manager\"}":{".":{}}}}}`)},
		},
		"FlavorsOfTheHub": {
			reason: "the copy keeps those with which it was created, whoever touches them and whatever the hub's Kueue says now",
			wanted: map[string]any{"runtimePatches": []any{patch("kueue.x-k8s.io/manager", "b200"), patch("a.dev/b", "1")}},
			found:  map[string]any{"runtimePatches": []any{patch("a.dev/b", "1"), patch("trainyard.dev/hub-flavors", "h100")}},
			owners: []metav1.ManagedFieldsEntry{owner("kueue", `{"f:spec":{"f:runtimePatches":{"k:{\"manager\":\"trainyard.dev/hub-flavors\"}":{"f:time":{}}}}}`)},
		},
		"PatchOfAnother": {
			reason: "there is no queue that would explain it", want: []string{"spec.runtimePatches[some.dev/body]"},
			wanted: map[string]any{"runtimePatches": []any{patch("a.dev/b", "1")}},
			found:  map[string]any{"runtimePatches": []any{patch("a.dev/b", "1"), patch("some.dev/body", "2")}},
			owners: []metav1.ManagedFieldsEntry{owner("kubectl-edit", `{"f:spec":{"f:runtimePatches":{"k:{\"manager\":\"some.dev/body\"}":{".":{}}}}}`)},
		},
		"KueueOfAnOlderRelease": {
			reason: "it had no key of its own", queued: true,
			wanted: map[string]any{}, found: map[string]any{"podSpecOverrides": []any{"gpu"}},
			owners: []metav1.ManagedFieldsEntry{owner("kueue", `{"f:spec":{"f:podSpecOverrides":{}}}`)},
		},
		"WhoCallsHimselfKueue": {
			reason: "there is no Workload that would explain it", want: []string{"spec.podSpecOverrides"},
			wanted: map[string]any{}, found: map[string]any{"podSpecOverrides": []any{"gpu"}},
			owners: []metav1.ManagedFieldsEntry{owner("kueue", `{"f:spec":{"f:podSpecOverrides":{}}}`)},
		},
		"PatchRemoved": {
			reason: "what is gone has no owner", want: []string{"spec.runtimePatches[a.dev/b]"},
			wanted: map[string]any{"runtimePatches": []any{patch("a.dev/b", "1")}}, found: map[string]any{},
		},
		"AddedOnTheHub": {
			reason: "the copy was made before", jobChanged: true,
			wanted: map[string]any{"activeDeadlineSeconds": int64(60), "args": []any{"a", "b"}}, found: map[string]any{"args": []any{"a"}},
		},
		"PatchesOfTheHub": {
			reason: "the hub's user has changed, removed and added some while the copy runs", jobChanged: true,
			wanted: map[string]any{"runtimePatches": []any{patch("a.dev/b", "2"), patch("a.dev/c", "1")}},
			found:  map[string]any{"runtimePatches": []any{patch("a.dev/b", "1"), patch("a.dev/d", "1")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			copy := testJob("c", func(job *unstructured.Unstructured) {
				job.Object["spec"] = runtime.DeepCopyJSONValue(test.found)
				job.SetManagedFields(test.owners)
			})
			var got []string
			for _, edit := range editsOf(test.wanted, copy, background{jobChanged: test.jobChanged, queued: test.queued}) {
				got = append(got, edit.String())
				edit.undo(specOf(copy))
			}
			check.Diff(t, test.want, got, "editsOf(): "+test.reason)
			if len(got) > 0 && !sameSpec(test.wanted, specOf(copy)) {
				t.Errorf("the edits were not undone: %s:\n%s", test.reason, cmp.Diff(test.wanted, specOf(copy)))
			}
		})
	}
}
