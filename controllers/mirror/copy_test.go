// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestNewCopy(t *testing.T) {
	job := testJob("origin", func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{"team": "vision", "kueue.x-k8s.io/queue-name": "gpus"})
		job.SetAnnotations(map[string]string{"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}", "trainyard.dev/ttl-seconds-after-finished": "0"})
		job.SetFinalizers([]string{"somebody/else"})
		job.SetResourceVersion("17")
		job.SetGeneration(3)
		job.Object["spec"] = map[string]any{
			"managedBy": "kueue.x-k8s.io/multikueue", "runtimeRef": map[string]any{"name": "torch"}, "fieldOfTomorrow": "kept",
		}
		job.Object["status"] = map[string]any{"conditions": []any{}}
	})
	want := map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1",
		"kind":       "TrainJob",
		"metadata": map[string]any{
			"namespace": "default",
			"name":      "job",
			"labels": map[string]any{
				"team": "vision", "kueue.x-k8s.io/queue-name": "gpus",
				"trainyard.dev/hub": "the-hub", "trainyard.dev/origin-uid": "origin",
			},
			"annotations": map[string]any{"note": "x", "trainyard.dev/attempt": "2"},
		},
		"spec": map[string]any{
			"managedBy": "trainer.kubeflow.org/trainjob-controller", "runtimeRef": map[string]any{"name": "torch"}, "fieldOfTomorrow": "kept",
		},
	}
	before := job.DeepCopy()
	if diff := cmp.Diff(want, newCopy(job, testDispatch(), "the-hub").Object); diff != "" {
		t.Errorf("newCopy() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, job.Object); diff != "" {
		t.Errorf("newCopy changed the hub's job, which the cache owns (-before +after):\n%s", diff)
	}
}

func TestUpdatedCopy(t *testing.T) {
	spec := func(suspend bool, patches ...any) jobOption {
		return func(job *unstructured.Unstructured) {
			fields := map[string]any{"suspend": suspend}
			if patches != nil {
				fields["runtimePatches"] = patches
			}
			job.Object["spec"] = fields
		}
	}
	patch := func(node, time string) any {
		return map[string]any{"manager": "a.dev/b", "time": time, "trainingRuntimeSpec": map[string]any{"node": node}}
	}
	fromHere := func(job *unstructured.Unstructured) {
		job.SetAnnotations(map[string]string{"trainyard.dev/suspended": "true"})
	}
	queued := func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "gpus"})
	}
	for name, test := range map[string]struct {
		reason    string
		job, copy *unstructured.Unstructured
		want      map[string]any
	}{
		"Same":      {reason: "no write that changes nothing", job: testJob("o", spec(false)), copy: testJob("c", spec(false))},
		"Suspended": {reason: "suspending the job suspends its copy", job: testJob("o", spec(true)), copy: testJob("c", spec(false)), want: map[string]any{"suspend": true}},
		"Resumed":   {reason: "and resuming resumes it", job: testJob("o", spec(false)), copy: testJob("c", spec(true)), want: map[string]any{"suspend": false}},
		"Kueue": {
			reason: "a copy in a queue that was not suspended from here is suspended by the worker's Kueue",
			job:    testJob("o", spec(false)), copy: testJob("c", spec(true), queued),
		},
		"SuspendedInQueue": {
			reason: "a suspension on the hub holds on every worker",
			job:    testJob("o", spec(true)), copy: testJob("c", spec(false), queued), want: map[string]any{"suspend": true},
		},
		"ResumedInQueue": {
			reason: "and ends there as it began",
			job:    testJob("o", spec(false)), copy: testJob("c", spec(true), queued, fromHere), want: map[string]any{"suspend": false},
		},
		"SuspendedAndPatched": {
			reason: "the worker refuses patches while pods are active, so the suspension goes ahead of them",
			job:    testJob("o", spec(true, patch("new", "2"))), copy: testJob("c", spec(false)), want: map[string]any{"suspend": true},
		},
		"PatchedWhileSuspended": {
			reason: "runtimePatches changed while suspended reach the copy, with the resumption in one request",
			job:    testJob("o", spec(false, patch("new", "2"))), copy: testJob("c", spec(true, patch("old", "1"))),
			want: map[string]any{"suspend": false, "runtimePatches": []any{
				map[string]any{"manager": "a.dev/b", "trainingRuntimeSpec": map[string]any{"node": "new"}},
			}},
		},
		"PatchRemoved": {
			reason: "a patch that is gone from the hub goes from the copy",
			job:    testJob("o", spec(true)), copy: testJob("c", spec(true, patch("old", "1"))),
			want: map[string]any{"suspend": true},
		},
		"OtherTime": {
			reason: "each cluster's webhook stamps its own time on a patch",
			job:    testJob("o", spec(true, patch("same", "2"))), copy: testJob("c", spec(true, patch("same", "1"))),
		},
		"PatchedWhileRunning": {
			reason: "the worker would refuse it",
			job:    testJob("o", spec(false, patch("new", "2"))), copy: testJob("c", spec(false, patch("old", "1"))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string]any
			if updated := updatedCopy(test.job, test.copy); updated != nil {
				got = updated.Object["spec"].(map[string]any)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("updatedCopy() (-want +got): %s\n%s", test.reason, diff)
			}
		})
	}
}

func TestShorten(t *testing.T) {
	for name, test := range map[string]struct {
		words string
		want  string
	}{
		"Short":           {words: " as it is\n", want: "as it is"},
		"Long":            {words: "0123456789abc", want: "0123456..."},
		"NotWithinAGlyph": {words: "012345äöüxyz", want: "012345..."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shorten(test.words, 10); got != test.want {
				t.Errorf("shorten() = %q, want %q", got, test.want)
			}
		})
	}
}
