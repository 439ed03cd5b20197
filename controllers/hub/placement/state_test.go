// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

type jobOption func(*unstructured.Unstructured)

func testJob(uid string, options ...jobOption) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace("default")
	job.SetName("job")
	job.SetUID(types.UID(uid))
	job.Object["spec"] = map[string]any{"managedBy": v1alpha1.ManagedByMultiKueue}
	for _, option := range options {
		option(job)
	}
	return job
}

func spec(field string, value any) jobOption {
	return func(job *unstructured.Unstructured) { job.Object["spec"].(map[string]any)[field] = value }
}

func deletingJob(job *unstructured.Unstructured) {
	now := metav1.Now()
	job.SetDeletionTimestamp(&now)
}

func complete(job *unstructured.Unstructured) {
	job.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
}

type dispatchOption func(*v1alpha1.Dispatch)

func testDispatch(cluster v1alpha1.ClusterName, options ...dispatchOption) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "dispatch"},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "origin"}, Cluster: cluster, Attempt: 1},
	}
	for _, option := range options {
		option(d)
	}
	return d
}

func evictedDispatch(d *v1alpha1.Dispatch) {
	d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted}
}

func deletingDispatch(d *v1alpha1.Dispatch) {
	now := metav1.Now()
	d.DeletionTimestamp = &now
}

func mirroredFalse(attempt int32) dispatchOption {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Attempt = attempt
		d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionFalse}}
	}
}

func TestClassify(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		facts  facts
		want   state
	}{
		"New":       {reason: "a worker has to be found", facts: facts{job: testJob("origin")}, want: unplaced},
		"Waiting":   {reason: "it is looked at again", facts: facts{job: testJob("origin"), dispatch: testDispatch("")}, want: unplaced},
		"Placed":    {reason: "mirror has it", facts: facts{job: testJob("origin"), dispatch: testDispatch("w")}, want: settled},
		"BuiltIn":   {reason: "the hub's own controller has it", facts: facts{job: testJob("origin", spec("managedBy", v1alpha1.ManagedByBuiltIn))}, want: settled},
		"NobodySet": {reason: "absent is the built-in value", facts: facts{job: testJob("origin", spec("managedBy", nil))}, want: settled},
		"Foreign":   {reason: "a value that nobody owns is left alone by all", facts: facts{job: testJob("origin", spec("managedBy", "example.com/other"))}, want: settled},
		"Suspended": {reason: "suspension is the gate", facts: facts{job: testJob("origin", spec("suspend", true))}, want: suspended},
		"SuspendedWaiting": {
			reason: "it leaves the waiting list", facts: facts{job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("")}, want: suspended,
		},
		"SuspendedPlaced": {
			reason: "its attempt ends",
			facts: facts{
				job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("w"), eviction: &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended},
			},
			want: evicted,
		},
		"AttemptEnded": {
			reason: "mirror has said that there is no copy and will be none",
			facts:  facts{job: testJob("origin"), dispatch: testDispatch("w", mirroredFalse(1))}, want: unplaced,
		},
		"EarlierAttemptEnded": {
			reason: "what an earlier attempt met does not move the current one: there may be a copy",
			facts:  facts{job: testJob("origin"), dispatch: testDispatch("w", mirroredFalse(0))}, want: settled,
		},
		"Evicted": {
			reason: "it has to make room, and mirror does not know yet",
			facts:  facts{job: testJob("origin"), dispatch: testDispatch("w"), eviction: &v1alpha1.Eviction{}}, want: evicted,
		},
		"EvictedAndWritten": {
			reason: "mirror has it",
			facts:  facts{job: testJob("origin"), dispatch: testDispatch("w", evictedDispatch), eviction: &v1alpha1.Eviction{}}, want: settled,
		},
		"EvictedAndOver": {
			reason: "it waits again",
			facts:  facts{job: testJob("origin"), dispatch: testDispatch("w", evictedDispatch, mirroredFalse(1))}, want: unplaced,
		},
		"EvictedAndComplete": {
			reason: "it has made room by itself",
			facts:  facts{job: testJob("origin", complete), dispatch: testDispatch("w"), eviction: &v1alpha1.Eviction{}}, want: settled,
		},
		"Complete": {reason: "it has ended", facts: facts{job: testJob("origin", complete)}, want: settled},
		"CompleteGivenUp": {
			reason: "the copy ended when its worker was given up, and its Dispatch has to say so",
			facts:  facts{job: testJob("origin", complete), dispatch: testDispatch("w", mirroredFalse(1))}, want: concluded,
		},
		"CompleteGivenUpGoing": {
			reason: "nothing is said of what goes",
			facts:  facts{job: testJob("origin", complete), dispatch: testDispatch("w", mirroredFalse(1), deletingDispatch)}, want: settled,
		},
		"CompleteWaiting": {reason: "a Dispatch that waits for nothing goes", facts: facts{job: testJob("origin", complete), dispatch: testDispatch("")}, want: orphaned},
		"GoneWaiting":     {reason: "we do not wait for the garbage collector", facts: facts{dispatch: testDispatch("")}, want: orphaned},
		"GonePlaced":      {reason: "mirror takes the copy away first", facts: facts{dispatch: testDispatch("w")}, want: settled},
		"Going":           {reason: "nothing is placed for a job that is being deleted", facts: facts{job: testJob("origin", deletingJob)}, want: settled},
		"Recreated": {
			reason: "the Dispatch of the old job must go first",
			facts:  facts{job: testJob("new"), dispatch: testDispatch("w")}, want: occupied,
		},
		"RecreatedWhileWaiting": {
			reason: "the old job's Dispatch guards no copy and goes at once",
			facts:  facts{job: testJob("new"), dispatch: testDispatch("")}, want: orphaned,
		},
		"DispatchDeletedByHand": {
			reason: "an eviction: when it is gone the job is placed anew",
			facts:  facts{job: testJob("origin"), dispatch: testDispatch("w", deletingDispatch)}, want: occupied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify(v1alpha1.ManagedByMultiKueue, test.facts); got != test.want {
				t.Errorf("classify() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}
