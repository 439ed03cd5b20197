// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
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

func givenUp(d *v1alpha1.Dispatch) {
	record.GiveUp(&d.Status, d, record.Why{Message: "words"}, time.Now())
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
		reason      string
		observation observation
		want        state
	}{
		"New":       {reason: "a worker has to be found", observation: observation{job: testJob("origin")}, want: unplaced},
		"Waiting":   {reason: "it is looked at again", observation: observation{job: testJob("origin"), dispatch: testDispatch("")}, want: unplaced},
		"Placed":    {reason: "mirror has it", observation: observation{job: testJob("origin"), dispatch: testDispatch("w")}, want: settled},
		"BuiltIn":   {reason: "the hub's own controller has it", observation: observation{job: testJob("origin", spec("managedBy", v1alpha1.ManagedByBuiltIn))}, want: settled},
		"NobodySet": {reason: "absent is the built-in value", observation: observation{job: testJob("origin", spec("managedBy", nil))}, want: settled},
		"Foreign":   {reason: "a value that nobody owns is left alone by all", observation: observation{job: testJob("origin", spec("managedBy", "example.com/other"))}, want: settled},
		"Suspended": {reason: "suspension is the gate", observation: observation{job: testJob("origin", spec("suspend", true))}, want: suspended},
		"SuspendedWaiting": {
			reason: "it leaves the waiting list", observation: observation{job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("")}, want: suspended,
		},
		"SuspendedPlaced": {
			reason: "its attempt ends",
			observation: observation{
				job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("w"), eviction: &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended},
			},
			want: evicted,
		},
		"SuspendedWithQuota": {
			reason: "it waits for room", want: unplaced,
			observation: observation{job: testJob("origin", spec("suspend", true)), kueue: kueue.Answer{Standing: kueue.QuotaReserved}},
		},
		"SuspendedUnknown": {
			reason: "it may have quota", want: unplaced,
			observation: observation{job: testJob("origin", spec("suspend", true)), kueue: kueue.Answer{Standing: kueue.Unknown}},
		},
		"PlacedWithQuota": {
			reason: "Kueue has to be told", want: held,
			observation: observation{
				job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("w"), kueue: kueue.Answer{Standing: kueue.QuotaReserved},
			},
		},
		"LeavingWithQuota": {
			reason: "it has no room any more", want: settled,
			observation: observation{
				job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("w", evictedDispatch), kueue: kueue.Answer{Standing: kueue.QuotaReserved},
			},
		},
		"EndedWithQuota": {
			reason: "it waits for room again", want: unplaced,
			observation: observation{
				job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("w", mirroredFalse(1)), kueue: kueue.Answer{Standing: kueue.QuotaReserved},
			},
		},
		"AttemptEnded": {
			reason:      "mirror has said that there is no copy and will be none",
			observation: observation{job: testJob("origin"), dispatch: testDispatch("w", mirroredFalse(1))}, want: unplaced,
		},
		"EarlierAttemptEnded": {
			reason:      "what an earlier attempt met does not move the current one: there may be a copy",
			observation: observation{job: testJob("origin"), dispatch: testDispatch("w", mirroredFalse(0))}, want: settled,
		},
		"Evicted": {
			reason:      "it has to make room, and mirror does not know yet",
			observation: observation{job: testJob("origin"), dispatch: testDispatch("w"), eviction: &v1alpha1.Eviction{}}, want: evicted,
		},
		"EvictedAndWritten": {
			reason:      "mirror has it",
			observation: observation{job: testJob("origin"), dispatch: testDispatch("w", evictedDispatch), eviction: &v1alpha1.Eviction{}}, want: settled,
		},
		"EvictedAndOver": {
			reason:      "it waits again",
			observation: observation{job: testJob("origin"), dispatch: testDispatch("w", evictedDispatch, mirroredFalse(1))}, want: unplaced,
		},
		"EvictedAndComplete": {
			reason:      "it has made room by itself",
			observation: observation{job: testJob("origin", complete), dispatch: testDispatch("w"), eviction: &v1alpha1.Eviction{}}, want: settled,
		},
		"Complete": {reason: "it has ended", observation: observation{job: testJob("origin", complete)}, want: settled},
		"CompleteGivenUp": {
			reason:      "the copy ended when its worker was given up, and its Dispatch has to say so",
			observation: observation{job: testJob("origin", complete), dispatch: testDispatch("w", mirroredFalse(1))}, want: concluded,
		},
		"CompleteGivenUpGoing": {
			reason:      "nothing is said of what goes",
			observation: observation{job: testJob("origin", complete), dispatch: testDispatch("w", mirroredFalse(1), deletingDispatch)}, want: settled,
		},
		"CompleteWaiting": {reason: "a Dispatch that waits for nothing goes", observation: observation{job: testJob("origin", complete), dispatch: testDispatch("")}, want: orphaned},
		"GivenUp":         {reason: "its TrainJob becomes Failed", observation: observation{job: testJob("origin"), dispatch: testDispatch("", givenUp)}, want: failed},
		"GivenUpSuspended": {
			reason: "the record stands", observation: observation{job: testJob("origin", spec("suspend", true)), dispatch: testDispatch("", givenUp)}, want: failed,
		},
		"GivenUpFailed": {reason: "its Dispatch says so", observation: observation{job: testJob("origin", complete), dispatch: testDispatch("", givenUp)}, want: concluded},
		"GivenUpGone":   {reason: "there is nobody to tell", observation: observation{dispatch: testDispatch("", givenUp)}, want: orphaned},
		"GoneWaiting":   {reason: "we do not wait for the garbage collector", observation: observation{dispatch: testDispatch("")}, want: orphaned},
		"GonePlaced":    {reason: "mirror takes the copy away first", observation: observation{dispatch: testDispatch("w")}, want: settled},
		"Going":         {reason: "nothing is placed for a job that is being deleted", observation: observation{job: testJob("origin", deletingJob)}, want: settled},
		"Recreated": {
			reason:      "the Dispatch of the old job must go first",
			observation: observation{job: testJob("new"), dispatch: testDispatch("w")}, want: occupied,
		},
		"RecreatedWhileWaiting": {
			reason:      "the old job's Dispatch guards no copy and goes at once",
			observation: observation{job: testJob("new"), dispatch: testDispatch("")}, want: orphaned,
		},
		"DispatchDeletedByHand": {
			reason:      "an eviction: when it is gone the job is placed anew",
			observation: observation{job: testJob("origin"), dispatch: testDispatch("w", deletingDispatch)}, want: occupied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify(v1alpha1.ManagedByMultiKueue, &test.observation); got != test.want {
				t.Errorf("classify() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}

// What is next for an unplaced job depends on Kueue, on what has been granted, and on the obstacles.
func TestNext(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	grant := &decider.Grant{}
	held := kueue.Answer{Standing: kueue.Held}
	for name, test := range map[string]struct {
		reason      string
		observation observation
		want        state
	}{
		"New":     {reason: "a worker has to be found", want: unplaced},
		"Granted": {reason: "the grant has to be written", observation: observation{placed: true, grant: grant}, want: granted},
		"Written": {reason: "the cache will show it", observation: observation{placed: true}, want: written},
		"WrittenUnknown": {
			reason:      "what is on record is not taken back before Kueue is known",
			observation: observation{placed: true, kueue: kueue.Answer{Standing: kueue.Unknown}}, want: written,
		},
		"GrantedUnknown": {
			reason:      "Kueue may have the job",
			observation: observation{placed: true, grant: grant, kueue: kueue.Answer{Standing: kueue.Unknown}}, want: silent,
		},
		"GrantedToMultiKueue": {
			reason:      "the grant is taken back",
			observation: observation{placed: true, grant: grant, kueue: kueue.Answer{Standing: kueue.MultiKueue}}, want: unplaced,
		},
		"GrantedCopied": {
			reason:      "the grant is taken back",
			observation: observation{placed: true, grant: grant, copyAt: "west"}, want: unplaced,
		},
		"Held": {
			reason:      "its Workload will probably show soon",
			observation: observation{kueue: held, past: past{firstSeen: at}}, want: silent,
		},
		"HeldLong": {
			reason:      "it is said",
			observation: observation{kueue: held, past: past{firstSeen: at.Add(-unreportedWait)}}, want: unplaced,
		},
		"HeldAgain": {
			reason:      "its Dispatch says something else",
			observation: observation{kueue: held, past: past{firstSeen: at}, dispatch: testDispatch("")}, want: unplaced,
		},
		"Exhausted": {
			reason:      "it is said that there is no next attempt",
			observation: observation{past: past{attempt: record.LastAttempt}}, want: unplaced,
		},
		"Placed": {
			reason:      "the record counts",
			observation: observation{dispatch: testDispatch("w"), placed: true, grant: grant}, want: settled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.observation.at, test.observation.job = at, testJob("origin")
			if got := next(v1alpha1.ManagedByMultiKueue, &test.observation); got != test.want {
				t.Errorf("next() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}

// Of several obstacles the job is told the first, in the order in which they have to be removed.
func TestObstacle(t *testing.T) {
	unmet := &dispatch.Decision{Reason: v1alpha1.ReasonRuntimeNotFound}
	all := observation{
		job: testJob("origin"), past: past{attempt: record.LastAttempt}, kueue: kueue.Answer{Standing: kueue.Held}, copyAt: "west",
		needs: need{protected: true, unmet: unmet},
	}
	for _, test := range []struct {
		want   string
		remove func(*observation)
	}{
		{want: v1alpha1.ReasonAttemptsExhausted, remove: func(seen *observation) { seen.past.attempt = 1 }},
		{want: v1alpha1.ReasonWaitingForWorkload, remove: func(seen *observation) { seen.kueue.Standing = kueue.MultiKueue }},
		{want: v1alpha1.ReasonManagedByMultiKueue, remove: func(seen *observation) { seen.kueue.Standing = kueue.QuotaReserved }},
		{want: v1alpha1.ReasonUnknownCopy, remove: func(seen *observation) { seen.copyAt = "" }},
		{want: v1alpha1.ReasonProtectedNamespace, remove: func(seen *observation) { seen.needs.protected = false }},
		{want: v1alpha1.ReasonRuntimeNotFound, remove: func(seen *observation) { seen.needs.unmet = nil }},
	} {
		if got := all.obstacle(); got == nil || got.Reason != test.want {
			t.Errorf("obstacle() = %+v, want %s", got, test.want)
		}
		test.remove(&all)
	}
	if got := all.obstacle(); got != nil {
		t.Errorf("without obstacles, obstacle() = %+v", got)
	}
}
