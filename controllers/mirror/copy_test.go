// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
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
	fenced := testDispatch(func(d *v1alpha1.Dispatch) { d.Spec.Failover = v1alpha1.FailoverFenced })
	if got := newCopy(job, fenced, "the-hub").GetAnnotations()["trainyard.dev/failover"]; got != "Fenced" {
		t.Errorf("the failover on the copy is %q", got)
	}
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
			if updated := updatedCopy(test.job, test.copy, permission{ok: true}); updated != nil {
				got = updated.Object["spec"].(map[string]any)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("updatedCopy() (-want +got): %s\n%s", test.reason, diff)
			}
		})
	}
}

// What the worker's agent has stopped goes on when the agent lets it, and nothing else is taken for that.
func TestUpdatedCopyThatWasStopped(t *testing.T) {
	copyOf := func(suspended bool, annotations map[string]string, options ...jobOption) *unstructured.Unstructured {
		return testJob("c", append(options, func(job *unstructured.Unstructured) {
			job.Object["spec"] = map[string]any{"suspend": suspended}
			job.SetAnnotations(annotations)
		})...)
	}
	queued := func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "gpus"})
	}
	running, suspended := copyOf(false, nil), copyOf(true, nil)
	valid, expired := permission{fenced: true, challenge: "3.7", ok: true}, permission{fenced: true, challenge: "3.7"}
	stopped := map[string]string{"trainyard.dev/fenced": "3.1", "trainyard.dev/challenge": "3.0"}
	for name, test := range map[string]struct {
		reason    string
		job, copy *unstructured.Unstructured
		may       permission
		want      *unstructured.Unstructured
	}{
		"GoesOn": {
			reason: "with the challenge by which the agent tells that this is no old message",
			job:    running, copy: copyOf(true, stopped), may: valid,
			want: copyOf(false, map[string]string{"trainyard.dev/challenge": "3.7"}),
		},
		"NotYet": {reason: "the agent would stop it again", job: running, copy: copyOf(true, stopped), may: expired},
		"SuspendedOnTheHubMeanwhile": {
			reason: "it stays suspended, from here now",
			job:    suspended, copy: copyOf(true, stopped), may: valid,
			want: copyOf(true, map[string]string{"trainyard.dev/challenge": "3.7", "trainyard.dev/suspended": "true"}),
		},
		"InAQueue": {
			reason: "whether it runs decides the worker's Kueue",
			job:    running, copy: copyOf(true, stopped, queued), may: valid,
			want: copyOf(true, map[string]string{"trainyard.dev/challenge": "3.7"}, queued),
		},
		"InAQueueNotYet": {reason: "neither of the two", job: running, copy: copyOf(true, stopped, queued), may: expired},
		"SuspendedByKueue": {
			reason: "the lease has nothing to do with it", job: running, copy: copyOf(true, nil, queued), may: valid,
		},
		"ResumedOnTheHub": {
			reason: "the agent says whether it runs, by the challenge",
			job:    running, copy: copyOf(true, map[string]string{"trainyard.dev/suspended": "true"}), may: expired,
			want: copyOf(false, map[string]string{"trainyard.dev/challenge": "3.7"}),
		},
		"SuspendedWhileTheAgentIsSilent": {
			reason: "stopping is always allowed", job: suspended, copy: copyOf(false, nil), may: expired,
			want: copyOf(true, map[string]string{"trainyard.dev/suspended": "true"}),
		},
		"NotFenced": {
			reason: "somebody had marked it so, and its Dispatch says something else",
			job:    running, copy: copyOf(true, stopped), may: permission{ok: true},
			want: copyOf(false, map[string]string{"trainyard.dev/challenge": "3.0"}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, updatedCopy(test.job, test.copy, test.may), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("updatedCopy() (-want +got): %s\n%s", test.reason, diff)
			}
		})
	}
}

func TestIsSuspendedByOthers(t *testing.T) {
	job := func(suspended bool, marks ...string) *unstructured.Unstructured {
		return testJob("o", func(job *unstructured.Unstructured) {
			job.Object["spec"] = map[string]any{"suspend": suspended}
			for _, mark := range marks {
				setAnnotation(job, mark, "x")
				job.SetLabels(map[string]string{mark: "x"})
			}
		})
	}
	const fromHere, stopped, queue = v1alpha1.AnnotationSuspended, v1alpha1.AnnotationFenced, labelKueueQueue
	for name, test := range map[string]struct {
		reason    string
		job, copy *unstructured.Unstructured
		want      bool
	}{
		"Same":           {"nothing is different", job(false), job(false), false},
		"Suspended":      {"neither from here, by the agent, nor by Kueue", job(false), job(true), true},
		"ByTheAgent":     {"it heard nothing from the hub", job(false), job(true, stopped), false},
		"ByKueue":        {"it is in a queue of the worker", job(false), job(true, queue), false},
		"FromHere":       {"the user resumes it", job(false), job(true, fromHere), false},
		"UserSuspends":   {"the user suspends it", job(true), job(false), false},
		"Resumed":        {"it was suspended from here", job(true), job(false, fromHere), true},
		"ResumedByKueue": {"it was suspended from here", job(true), job(false, fromHere, queue), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isSuspendedByOthers(test.job, test.copy); got != test.want {
				t.Errorf("isSuspendedByOthers() = %t: %s", got, test.reason)
			}
		})
	}
}
