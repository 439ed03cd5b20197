// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package judgement

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

type jobOption func(*unstructured.Unstructured)

func testJob(uid string, options ...jobOption) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace("default")
	job.SetName("job")
	job.SetUID(types.UID(uid))
	for _, option := range options {
		option(job)
	}
	return job
}

// testCopy makes a copy with the UID "copy".
func testCopy(origin, attempt string, options ...jobOption) *unstructured.Unstructured {
	return testJob("copy", append(options, func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: origin})
		job.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: attempt})
	})...)
}

func withUID(uid types.UID) jobOption {
	return func(job *unstructured.Unstructured) { job.SetUID(uid) }
}

func inNamespace(name string) jobOption {
	return func(job *unstructured.Unstructured) { job.SetNamespace(name) }
}

func managedBy(name string) jobOption {
	return func(job *unstructured.Unstructured) { job.Object["spec"] = map[string]any{"managedBy": name} }
}

func deleting(job *unstructured.Unstructured) {
	now := metav1.Now()
	job.SetDeletionTimestamp(&now)
}

func ended(kind string) jobOption {
	return func(job *unstructured.Unstructured) {
		job.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": kind, "status": "True"}}}
	}
}

type dispatchOption func(*v1alpha1.Dispatch)

// testDispatch makes a Dispatch of the job "origin" that is placed here, in attempt 2.
func testDispatch(options ...dispatchOption) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "dispatch"},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "origin"}, Cluster: "here", Attempt: 2,
		},
	}
	for _, option := range options {
		option(d)
	}
	return d
}

// dispatchOn makes a Dispatch of the job "origin" on a worker.
func dispatchOn(cluster v1alpha1.ClusterName, id types.UID, attempt int32, options ...dispatchOption) *v1alpha1.Dispatch {
	d := testDispatch()
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = cluster, id, attempt
	for _, option := range options {
		option(d)
	}
	return d
}

func condition(kind string, status metav1.ConditionStatus, attempt int32) dispatchOption {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Attempt = attempt
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: kind, Status: status})
	}
}

// withCopy says that the attempt has the copy of testCopy.
func withCopy(d *v1alpha1.Dispatch) {
	condition("Mirrored", "True", 2)(d)
	d.Status.CopyUID = "copy"
}

func evicted(d *v1alpha1.Dispatch) {
	d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted}
}

func elsewhere(d *v1alpha1.Dispatch) { d.Spec.Cluster = "elsewhere" }

func onAnotherCluster(d *v1alpha1.Dispatch) { d.Spec.ClusterID = "other" }

func waits(d *v1alpha1.Dispatch) { d.Spec.Cluster = "" }

func gone(d *v1alpha1.Dispatch) { now := metav1.Now(); d.DeletionTimestamp = &now }

func guarded(d *v1alpha1.Dispatch) { d.Finalizers = []string{v1alpha1.FinalizerCopy} }

func tombstones(of v1alpha1.Tombstone) []v1alpha1.Tombstone {
	return []v1alpha1.Tombstone{tombstoneOf("elsewhere", "origin", 9), of}
}

func tombstoneOf(id, origin types.UID, attempt int32) v1alpha1.Tombstone {
	return v1alpha1.Tombstone{Spec: v1alpha1.TombstoneSpec{
		Cluster: "before", ClusterID: id, Namespace: "default", Attempt: attempt,
		TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: origin},
	}}
}

func TestOf(t *testing.T) {
	finished, mirrored, over := condition("Finished", "True", 2), condition("Mirrored", "True", 2), condition("Mirrored", "False", 2)
	overBefore := dispatchOn("here", "id", 2, condition("Mirrored", "False", 1))
	known := dispatchOn("here", "id", 2, withCopy)
	knownEnd := dispatchOn("here", "id", 2, withCopy, finished)
	ours := testJob("origin", managedBy("us"))
	complete, going := testJob("origin", managedBy("us"), ended("Complete")), testJob("origin", managedBy("us"), deleting)
	freed, kept := dispatchOn("here", "id", 2, gone), dispatchOn("here", "id", 2, gone, guarded)
	for name, test := range map[string]struct {
		reason string
		seen   Seen
		want   Judgement
	}{
		"Unswept":        {reason: "one could be created", seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(), Hold: Unswept}, want: Judgement{Waiting, Gone}},
		"UnsweptNobody":  {reason: "nothing must be tried there", seen: Seen{Hold: Unswept}, want: Judgement{Waiting, Gone}},
		"UnsweptDeleted": {reason: "deletions do not wait", seen: Seen{Dispatch: testDispatch(gone), Hold: Unswept}, want: Judgement{Released, Gone}},
		"Held":           {reason: "it may run elsewhere", seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(), Hold: Held}, want: Judgement{HeldBack, Gone}},
		"UnsweptCurrent": {
			reason: "the hub learns the status", want: Judgement{Mirrored, Needed},
			seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "2"), Hold: Unswept},
		},
		"UnsweptEdited": {
			reason: "it is the copy on record, whatever labels and annotations say", want: Judgement{Mirrored, Needed},
			seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy), Copy: testCopy("other", "9"), Hold: Unswept},
		},
		"UnsweptSecond": {
			reason: "the attempt has had a copy", want: Judgement{CopyDeleted, Needed},
			seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy), Copy: testCopy("origin", "2", withUID("y")), Hold: Unswept},
		},
		"UnsweptOlder": {
			reason: "the sweep deletes it", want: Judgement{Waiting, Outdated},
			seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "1"), Hold: Unswept},
		},
		"UnsweptOtherJob": {
			reason: "the record does not speak of it", want: Judgement{Waiting, Unknown},
			seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("other", "2"), Hold: Unswept},
		},
		"NoDispatch": {
			reason: "without a record nothing is done, whatever is on the worker",
			seen:   Seen{Job: testJob("origin"), Copy: testCopy("origin", "2")},
			want:   Judgement{Idle, Unknown},
		},
		"PlacedElsewhere": {
			reason: "another worker's mirror has this job; our copy of an older attempt is garbage collection's",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(elsewhere), Copy: testCopy("origin", "1")},
			want:   Judgement{Idle, Outdated},
		},
		"Waiting":   {reason: "no worker is chosen", seen: Seen{Job: testJob("origin"), Dispatch: testDispatch(waits)}, want: Judgement{Idle, Gone}},
		"NoCopyYet": {reason: "the copy is to be created", seen: Seen{Job: testJob("origin"), Dispatch: testDispatch()}, want: Judgement{Absent, Gone}},
		"CopyRuns": {
			reason: "the usual case",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "2")},
			want:   Judgement{Mirrored, Needed},
		},
		"SecondCopy": {
			reason: "an attempt has one copy; one that comes when that has gone is not the attempt's",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy), Copy: testCopy("origin", "2", withUID("second"))},
			want:   Judgement{CopyDeleted, Needed},
		},
		"SecondCopyOfOneNotOnRecord": {
			reason: "as SecondCopy, but only this process knows of the first",
			seen: Seen{
				Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "2", withUID("second")), Copied: true, Known: record.Known{CopyUID: "copy"},
			},
			want: Judgement{CopyDeleted, Needed},
		},
		"SecondCopyEnded": {
			reason: "nothing that it says is the job's",
			seen: Seen{
				Job: testJob("origin"), Dispatch: testDispatch(withCopy), Copy: testCopy("origin", "2", withUID("second"), ended("Complete")),
			},
			want: Judgement{CopyDeleted, Needed},
		},
		"SecondCopyEvicted": {
			reason: "it has to go too",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy, evicted), Copy: testCopy("origin", "2", withUID("second"))},
			want:   Judgement{Evicting, Needed},
		},
		"CopyOfOlderAttempt": {
			reason: "an old attempt never comes back: its copy must go before ours is created",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "1")},
			want:   Judgement{Blocked, Outdated},
		},
		"CopyOfAnotherJob": {
			reason: "a copy that the record does not speak of is not ours to touch",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("other", "2")},
			want:   Judgement{Conflicting, Unknown},
		},
		"CopyBeingDeleted": {
			reason: "its end is awaited before anything else is done",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "2", deleting)},
			want:   Judgement{Blocked, Needed},
		},
		"CopyComplete": {
			reason: "the hub must say so",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "2", ended("Complete"))},
			want:   Judgement{Finished, Needed},
		},
		"CopyFailedAndBeingDeleted": {
			reason: "the end counts, even of a copy that goes",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("origin", "2", ended("Failed"), deleting)},
			want:   Judgement{Finished, Needed},
		},
		"HubSaysCompleteDispatchDoesNot": {
			reason: "a crash between the two writes: the second is made, with or without the copy",
			seen:   Seen{Job: testJob("origin", ended("Complete")), Dispatch: testDispatch()},
			want:   Judgement{Finished, Gone},
		},
		"Finished": {
			reason: "nothing is done for finished jobs, not even when the copy goes",
			seen:   Seen{Job: testJob("origin", ended("Complete")), Dispatch: testDispatch(condition("Finished", "True", 2))},
			want:   Judgement{Idle, Gone},
		},
		"Rejected": {
			reason: "the attempt is over, placement decides",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(condition("Mirrored", "False", 2))},
			want:   Judgement{Idle, Gone},
		},
		"RejectedBefore": {
			reason: "what an earlier attempt met says nothing of this one",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(condition("Mirrored", "False", 1))},
			want:   Judgement{Absent, Gone},
		},
		"WorkerIsBack": {
			reason: "that is on record before anything else is done: somebody may be giving the attempt up",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(condition("WorkerLost", "True", 2)), Copy: testCopy("origin", "2")},
			want:   Judgement{Returned, Needed},
		},
		"WorkerIsBackAndTheCopyHasEnded": {
			reason: "even then",
			seen: Seen{
				Job: testJob("origin"), Dispatch: testDispatch(condition("WorkerLost", "True", 2)), Copy: testCopy("origin", "2", ended("Complete")),
			},
			want: Judgement{Returned, Needed},
		},
		"WorkerIsBackTooLate": {
			reason: "the attempt was given up; its copy is garbage collection's",
			seen: Seen{
				Job: testJob("origin"), Dispatch: testDispatch(condition("Mirrored", "False", 2)), Copy: testCopy("origin", "2", ended("Complete")),
			},
			want: Judgement{Idle, Outdated},
		},
		"WorkerIsBackAndTheJobGone": {
			reason: "the copy has to go, whoever says so first",
			seen:   Seen{Dispatch: testDispatch(condition("WorkerLost", "True", 2)), Copy: testCopy("origin", "2")},
			want:   Judgement{Withdrawing, Needed},
		},
		"OriginEdited": {
			reason: "a copy with the UID on record is ours, whatever it says",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy), Copy: testCopy("other", "2")},
			want:   Judgement{Mirrored, Needed},
		},
		"AttemptEdited": {
			reason: "and of this attempt",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy), Copy: testCopy("origin", "9")},
			want:   Judgement{Mirrored, Needed},
		},
		"MarksEditedBeforeTheReport": {
			reason: "this process knows the UID of what it created",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copy: testCopy("other", "x"), Copied: true, Known: record.Known{CopyUID: "copy"}},
			want:   Judgement{Mirrored, Needed},
		},
		"MarksEditedAndTheJobGone": {
			reason: "nothing of a job that is gone may stay",
			seen:   Seen{Dispatch: testDispatch(withCopy), Copy: testCopy("other", "2")},
			want:   Judgement{Withdrawing, Needed},
		},
		"MarksEditedAndEvicted": {
			reason: "it is ours to stop",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy, evicted), Copy: testCopy("other", "2")},
			want:   Judgement{Evicting, Needed},
		},
		"AnotherJobInPlaceOfAnEvictedCopy": {
			reason: "the eviction goes on, and its outcome is that of the eviction",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(withCopy, evicted), Copy: testJob("foreign")},
			want:   Judgement{Evicting, Unknown},
		},
		"AnotherJobInPlaceOfTheCopy": {
			reason: "the pods of ours may run on, so the worker is asked before the attempt ends",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(condition("Mirrored", "True", 2)), Copy: testCopy("other", "2")},
			want:   Judgement{CopyDeleted, Unknown},
		},
		"CopyDeletedByHand": {
			reason: "there was a copy of this attempt, and a second must not be made in its name",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(condition("Mirrored", "True", 2))},
			want:   Judgement{CopyDeleted, Gone},
		},
		"CopyDeletedBeforeTheDispatchSaidRunning": {
			reason: "this process remembers the copy",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(), Copied: true},
			want:   Judgement{CopyDeleted, Gone},
		},
		"JobGone": {reason: "the copy goes first", seen: Seen{Dispatch: testDispatch(), Copy: testCopy("origin", "2")}, want: Judgement{Withdrawing, Needed}},
		"JobGoneCopyOfOlderAttempt": {
			reason: "every copy of the job goes, of whichever attempt",
			seen:   Seen{Dispatch: testDispatch(), Copy: testCopy("origin", "1")},
			want:   Judgement{Withdrawing, Outdated},
		},
		"JobGoneAndCopyGone": {reason: "then the Dispatch", seen: Seen{Dispatch: testDispatch()}, want: Judgement{Released, Gone}},
		"JobGoneForeignCopy": {
			reason: "what is not ours does not hold the Dispatch",
			seen:   Seen{Dispatch: testDispatch(), Copy: testCopy("other", "2")},
			want:   Judgement{Released, Unknown},
		},
		"JobBeingDeleted": {
			reason: "foreground deletion waits for us",
			seen:   Seen{Job: testJob("origin", deleting), Dispatch: testDispatch(), Copy: testCopy("origin", "2")},
			want:   Judgement{Withdrawing, Needed},
		},
		"JobRecreated": {
			reason: "the same name, another Job: what there was for the old one goes",
			seen:   Seen{Job: testJob("new"), Dispatch: testDispatch(), Copy: testCopy("origin", "2")},
			want:   Judgement{Withdrawing, Needed},
		},
		"DispatchDeletedByHand": {
			reason: "an eviction: the copy goes, then the Dispatch, and placement makes another",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(gone), Copy: testCopy("origin", "2")},
			want:   Judgement{Withdrawing, Needed},
		},
		"EvictedWhileItRuns": {
			reason: "the copy is to be stopped",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted), Copy: testCopy("origin", "2")},
			want:   Judgement{Evicting, Needed},
		},
		"EvictedBeforeTheCopy": {
			reason: "none is to be created any more",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted)},
			want:   Judgement{Evicting, Gone},
		},
		"EvictedCopyBeingDeleted": {
			reason: "whoever deletes it, its end is awaited",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted), Copy: testCopy("origin", "2", deleting)},
			want:   Judgement{Evicting, Needed},
		},
		"EvictedCopyGone": {
			reason: "the attempt ends with the eviction, and not because somebody deleted the copy",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted, condition("Mirrored", "True", 2)), Copied: true},
			want:   Judgement{Evicting, Gone},
		},
		"EvictedCopyComplete": {
			reason: "what has finished is not to be stopped",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted), Copy: testCopy("origin", "2", ended("Complete"))},
			want:   Judgement{Finished, Needed},
		},
		"EvictedCopyFailedAndBeingDeleted": {
			reason: "the end counts, even if it came while the copy was being stopped",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted), Copy: testCopy("origin", "2", ended("Failed"), deleting)},
			want:   Judgement{Finished, Needed},
		},
		"EvictedHubSaysComplete": {
			reason: "the end is final, with or without the copy",
			seen:   Seen{Job: testJob("origin", ended("Complete")), Dispatch: testDispatch(evicted)},
			want:   Judgement{Finished, Gone},
		},
		"EvictedAfterTheEnd": {
			reason: "it has no object",
			seen:   Seen{Job: testJob("origin", ended("Complete")), Dispatch: testDispatch(evicted, condition("Finished", "True", 2))},
			want:   Judgement{Idle, Gone},
		},
		"EvictedAndDone": {
			reason: "the attempt is over, placement decides and takes the eviction away",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted, condition("Mirrored", "False", 2))},
			want:   Judgement{Idle, Gone},
		},
		"EvictedCopyOfOlderAttempt": {
			reason: "the job must not be placed elsewhere while an old copy of it may run",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted), Copy: testCopy("origin", "1")},
			want:   Judgement{Blocked, Outdated},
		},
		"EvictedCopyOfAnotherJob": {
			reason: "the attempt ends, and the next must not be made there",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted), Copy: testCopy("other", "2")},
			want:   Judgement{Conflicting, Unknown},
		},
		"EvictedJobGone": {
			reason: "there is nothing to place again",
			seen:   Seen{Dispatch: testDispatch(evicted), Copy: testCopy("origin", "2")},
			want:   Judgement{Withdrawing, Needed},
		},
		"EvictedOnAnotherCluster": {
			reason: "the copy is where the name does not lead any more",
			seen:   Seen{Job: testJob("origin"), Dispatch: testDispatch(evicted, onAnotherCluster)},
			want:   Judgement{Misplaced, Gone},
		},
		"FinishedJobGone": {
			reason: "a retained copy does not outlive its job",
			seen:   Seen{Dispatch: testDispatch(condition("Finished", "True", 2)), Copy: testCopy("origin", "2", ended("Complete"))},
			want:   Judgement{Withdrawing, Retained},
		},
		"Current": {reason: "it runs", seen: Seen{Dispatch: dispatchOn("here", "id", 2, mirrored), Copy: testCopy("origin", "2")}, want: Judgement{Withdrawing, Needed}},
		"CurrentOld": {
			reason: "a Dispatch may name no cluster ID", want: Judgement{Withdrawing, Needed},
			seen: Seen{Dispatch: dispatchOn("here", "", 2), Copy: testCopy("origin", "2")},
		},
		"CopyFinished": {
			reason: "it waits for its retention", want: Judgement{Withdrawing, Retained},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2, mirrored, finished), Copy: testCopy("origin", "2")},
		},
		"FinishedKnown": {
			reason: "it waits for its retention", want: Judgement{Withdrawing, Retained},
			seen: Seen{Dispatch: knownEnd, Copy: testCopy("origin", "2", withUID("copy"))},
		},
		"CopySecondCopy": {
			reason: "it came when the copy that has finished was gone", want: Judgement{Withdrawing, Outdated},
			seen: Seen{Dispatch: knownEnd, Copy: testCopy("origin", "2", withUID("another"))},
		},
		"OldAttempt": {
			reason: "the hub has moved on", want: Judgement{Withdrawing, Outdated},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2), Copy: testCopy("origin", "1")},
		},
		"OldAttemptOf": {
			reason: "a finished job has one copy", want: Judgement{Withdrawing, Outdated},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2, finished), Copy: testCopy("origin", "1")},
		},
		"MovedAway": {
			reason: "it runs elsewhere", want: Judgement{Idle, Outdated},
			seen: Seen{Dispatch: dispatchOn("elsewhere", "other", 2), Copy: testCopy("origin", "1")},
		},
		"AttemptEnded": {
			reason: "the attempt was given up, and placement has not moved on yet", want: Judgement{Withdrawing, Outdated},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2, over), Copy: testCopy("origin", "2")},
		},
		"EarlierEnded": {
			reason: "what has ended is the attempt before", want: Judgement{Withdrawing, Needed},
			seen: Seen{Dispatch: overBefore, Copy: testCopy("origin", "2")},
		},
		"Renamed": {
			reason: "the job was placed on this cluster, which has got another name", want: Judgement{Idle, Needed},
			seen: Seen{Dispatch: dispatchOn("elsewhere", "id", 2), Copy: testCopy("origin", "2")},
		},
		"RenamedOld": {
			reason: "nothing says that it was this cluster", want: Judgement{Idle, Unknown},
			seen: Seen{Dispatch: dispatchOn("elsewhere", "", 2), Copy: testCopy("origin", "2")},
		},
		"OtherCluster": {
			reason: "the name led to another cluster when the job was placed", want: Judgement{Misplaced, Unknown},
			seen: Seen{Dispatch: dispatchOn("here", "other", 2), Copy: testCopy("origin", "2")},
		},
		"Twice": {
			reason: "the same attempt is on another worker", want: Judgement{Idle, Unknown},
			seen: Seen{Dispatch: dispatchOn("elsewhere", "other", 2), Copy: testCopy("origin", "2")},
		},
		"CopyWaiting": {
			reason: "this attempt has ended, the next has no worker yet", want: Judgement{Idle, Outdated},
			seen: Seen{Dispatch: dispatchOn("", "", 2), Copy: testCopy("origin", "2")},
		},
		"NoRecord": {reason: "after a restore absence proves nothing", seen: Seen{Copy: testCopy("origin", "2")}, want: Judgement{Idle, Unknown}},
		"OtherOrigin": {
			reason: "a job of this name that the hub does not know", want: Judgement{Released, Unknown},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2), Copy: testCopy("other", "2")},
		},
		"Later": {
			reason: "the hub was restored from before this attempt", want: Judgement{Withdrawing, Unknown},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2), Copy: testCopy("origin", "3")},
		},
		"NoAttempt": {
			reason: "somebody took the annotation off", want: Judgement{Withdrawing, Unknown},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2), Copy: testCopy("origin", "")},
		},
		"Edited": {
			reason: "it is the copy on record, whatever was written on it", want: Judgement{Withdrawing, Needed},
			seen: Seen{Dispatch: known, Copy: testCopy("other", "1", withUID("copy"))},
		},
		"EditedLater": {
			reason: "it is the copy on record", want: Judgement{Withdrawing, Needed},
			seen: Seen{Dispatch: known, Copy: testCopy("origin", "7", withUID("copy"))},
		},
		"EditedOther": {
			reason: "another copy is on record", want: Judgement{Withdrawing, Outdated},
			seen: Seen{Dispatch: known, Copy: testCopy("origin", "1", withUID("another"))},
		},
		"Deleting": {
			reason: "it is going already", want: Judgement{Withdrawing, Needed},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2), Copy: testCopy("origin", "1", deleting)},
		},
		"UnknownGoing": {reason: "its job must wait until it is gone", seen: Seen{Copy: testCopy("origin", "1", deleting)}, want: Judgement{Idle, Unknown}},
		"Tombstone": {
			reason: "its job was deleted while the worker was away", want: Judgement{Idle, Outdated},
			seen: Seen{Tombstones: tombstones(tombstoneOf("id", "origin", 2)), Copy: testCopy("origin", "2")},
		},
		"TombstoneGoing": {
			reason: "it is going already", want: Judgement{Idle, Needed},
			seen: Seen{Tombstones: tombstones(tombstoneOf("id", "origin", 2)), Copy: testCopy("origin", "2", deleting)},
		},
		"TombstoneEarlier": {
			reason: "a Tombstone is about attempts up to its own", want: Judgement{Idle, Unknown},
			seen: Seen{Tombstones: tombstones(tombstoneOf("id", "origin", 2)), Copy: testCopy("origin", "3")},
		},
		"TombstoneThere": {
			reason: "it is about another cluster", want: Judgement{Idle, Unknown},
			seen: Seen{Tombstones: tombstones(tombstoneOf("other", "origin", 2)), Copy: testCopy("origin", "2")},
		},
		"TombstoneOther": {
			reason: "it is about another job", want: Judgement{Idle, Unknown},
			seen: Seen{Tombstones: tombstones(tombstoneOf("id", "other", 2)), Copy: testCopy("origin", "2")},
		},
		"TombstoneForged": {
			reason: "a user of another namespace has written the UID on it", want: Judgement{Idle, Unknown},
			seen: Seen{Tombstones: tombstones(tombstoneOf("id", "origin", 2)), Copy: testCopy("origin", "2", inNamespace("other"))},
		},
		"AskedLater": {
			reason: "the attempt rises to that of the copy", want: Judgement{Idle, Adoptable},
			seen: Seen{Job: ours, Dispatch: dispatchOn("elsewhere", "other", 2), Copy: testCopy("origin", "3"), Asked: true},
		},
		"LaterWaiting": {
			reason: "the job runs here, and must not be placed again", want: Judgement{Idle, Adoptable},
			seen: Seen{Job: ours, Dispatch: dispatchOn("", "", 2), Copy: testCopy("origin", "3"), Asked: true},
		},
		"NeverPlaced": {
			reason: "it does by what the hub knows", want: Judgement{Idle, Adoptable},
			seen: Seen{Job: ours, Dispatch: dispatchOn("", "", 0), Copy: testCopy("origin", "1"), Asked: true},
		},
		"DispatchLost": {
			reason: "the job is there, its Dispatch is not", want: Judgement{Idle, Adoptable},
			seen: Seen{Job: ours, Copy: testCopy("origin", "3"), Asked: true},
		},
		"LowerOther":  {reason: "the highest attempt wins", seen: Seen{Job: ours, Copy: testCopy("origin", "3"), Asked: true, OtherAttempt: 2}, want: Judgement{Idle, Adoptable}},
		"HigherOther": {reason: "the highest attempt wins", seen: Seen{Job: ours, Copy: testCopy("origin", "3"), Asked: true, OtherAttempt: 4}, want: Judgement{Idle, Unknown}},
		"EqualOther": {
			reason: "which of the two is right nobody knows", want: Judgement{Idle, Unknown},
			seen: Seen{Job: ours, Dispatch: dispatchOn("", "", 2), Copy: testCopy("origin", "3"), Asked: true, OtherAttempt: 3},
		},
		"Over": {reason: "the job has ended", seen: Seen{Job: complete, Copy: testCopy("origin", "3"), Asked: true}, want: Judgement{Idle, Orphaned}},
		"OverLater": {
			reason: "the job has ended", want: Judgement{Finished, Orphaned},
			seen: Seen{Job: complete, Dispatch: dispatchOn("here", "id", 2), Copy: testCopy("origin", "3"), Asked: true},
		},
		"OverGoing": {reason: "it is going already", seen: Seen{Job: complete, Copy: testCopy("origin", "3", deleting), Asked: true}, want: Judgement{Idle, Unknown}},
		"JobGoing": {
			reason: "the job was deleted, and no Dispatch waits for the copy", want: Judgement{Idle, Orphaned},
			seen: Seen{Job: going, Copy: testCopy("origin", "3"), Asked: true},
		},
		"JobGoingLater": {
			reason: "mirror deletes it, and then lets the Dispatch go", want: Judgement{Withdrawing, Adoptable},
			seen: Seen{Job: going, Dispatch: kept, Copy: testCopy("origin", "3"), Asked: true},
		},
		"DispatchFreed": {
			reason: "it would not wait for the copy", want: Judgement{Withdrawing, Postponed},
			seen: Seen{Job: ours, Dispatch: freed, Copy: testCopy("origin", "3"), Asked: true},
		},
		"FinishedBefore": {
			reason: "no attempt follows one that has finished", want: Judgement{Idle, Unknown},
			seen: Seen{Job: ours, Dispatch: dispatchOn("here", "id", 2, finished), Copy: testCopy("origin", "3"), Asked: true},
		},
		"NoJob": {
			reason: "absence is no record of a deletion", want: Judgement{Withdrawing, Unknown},
			seen: Seen{Dispatch: dispatchOn("here", "id", 2), Copy: testCopy("origin", "3"), Asked: true},
		},
		"OtherJob": {
			reason: "the job has another origin", want: Judgement{Idle, Unknown},
			seen: Seen{Job: testJob("other", managedBy("us")), Copy: testCopy("origin", "3"), Asked: true},
		},
		"OtherDispatch": {
			reason: "the name is taken", want: Judgement{Idle, Unknown},
			seen: Seen{Job: ours, Dispatch: &v1alpha1.Dispatch{}, Copy: testCopy("origin", "3"), Asked: true},
		},
		"Foreign": {
			reason: "the job is not ours", want: Judgement{Idle, Unknown},
			seen: Seen{Job: testJob("origin", managedBy("them")), Copy: testCopy("origin", "3"), Asked: true},
		},
		"AskedTwice": {
			reason: "the same attempt is on another worker", want: Judgement{Idle, Unknown},
			seen: Seen{Job: ours, Dispatch: dispatchOn("elsewhere", "other", 2), Copy: testCopy("origin", "2"), Asked: true},
		},
		"AskedNoAttempt": {reason: "somebody took the annotation off", seen: Seen{Job: ours, Copy: testCopy("origin", ""), Asked: true}, want: Judgement{Idle, Unknown}},
		"Going":          {reason: "somebody deletes it", seen: Seen{Job: ours, Copy: testCopy("origin", "3", deleting), Asked: true}, want: Judgement{Idle, Unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			test.seen.Here, test.seen.ManagedBy, test.seen.Known.HubID = Worker{Name: "here", ClusterID: "id"}, "us", "hub"
			if copy, ok := test.seen.Copy.(*unstructured.Unstructured); ok {
				test.seen.CopyEnded = trainjobs.Terminal(copy) != nil
			}
			if got := Of(test.seen); got != test.want {
				t.Errorf("Of() = %s, %s, want %s, %s: %s", got.Attempt, got.Copy, test.want.Attempt, test.want.Copy, test.reason)
			}
		})
	}
}
