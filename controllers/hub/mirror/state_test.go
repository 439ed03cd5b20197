// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

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
	for _, option := range options {
		option(job)
	}
	return job
}

func testCopy(origin, attempt string, options ...jobOption) *unstructured.Unstructured {
	return testJob("copy", append(options, func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: origin})
		job.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: attempt})
	})...)
}

func withUID(uid types.UID) jobOption {
	return func(job *unstructured.Unstructured) { job.SetUID(uid) }
}

func deleting(job *unstructured.Unstructured) {
	now := metav1.Now()
	job.SetDeletionTimestamp(&now)
}

func ended(kind string) jobOption {
	return func(job *unstructured.Unstructured) {
		job.Object["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "Suspended", "status": "False", "reason": "Resumed"},
			map[string]any{"type": kind, "status": "True", "reason": "Because", "message": "of that"},
		}}
	}
}

type dispatchOption func(*v1alpha1.Dispatch)

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

func evicted(d *v1alpha1.Dispatch) {
	d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted}
}

// withCopy says that the attempt has the copy of testCopy.
func withCopy(d *v1alpha1.Dispatch) {
	condition("Mirrored", "True", 2)(d)
	d.Status.CopyUID = "copy"
}

// recordedBefore says that an earlier attempt has had the copy of testCopy.
func recordedBefore(d *v1alpha1.Dispatch) {
	condition("Mirrored", "True", 1)(d)
	d.Status.CopyUID = "copy"
}

func condition(kind string, status metav1.ConditionStatus, attempt int32) dispatchOption {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Attempt = attempt
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: kind, Status: status})
	}
}

func TestPresenceOf(t *testing.T) {
	otherHub := func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{
			v1alpha1.LabelHub: "hub-2", v1alpha1.LabelOriginUID: "origin",
		})
	}
	unlabelled := func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{v1alpha1.LabelOriginUID: "origin"})
	}
	ofOtherHub := testCopy("origin", "2")
	otherHub(ofOtherHub)
	bare := testCopy("origin", "2")
	unlabelled(bare)
	for name, test := range map[string]struct {
		reason   string
		dispatch *v1alpha1.Dispatch
		copy     *unstructured.Unstructured
		want     presence
	}{
		"None":       {reason: "nobody has the name", want: nothing},
		"OfAttempt":  {reason: "its marks say so, and no other is on record", copy: testCopy("origin", "2"), want: current},
		"OnRecord":   {reason: "its UID is on record", dispatch: testDispatch(withCopy), copy: testCopy("x", "9"), want: current},
		"Second":     {reason: "another UID is on record", dispatch: testDispatch(withCopy), copy: testCopy("origin", "2", withUID("y")), want: second},
		"Older":      {reason: "it is of another attempt", copy: testCopy("origin", "1"), want: older},
		"OlderKnown": {reason: "its UID is on record for another attempt", dispatch: testDispatch(recordedBefore), copy: testCopy("x", "1"), want: older},
		"Unlabelled": {reason: "a label that is missing says nothing", copy: bare, want: current},
		"Foreign":    {reason: "it is of another TrainJob", copy: testCopy("other", "2"), want: foreign},
		"OfTheUser":  {reason: "it has no marks", copy: testJob("x"), want: foreign},
		"OtherHub":   {reason: "a hub that was made from the same backup knows the same TrainJob", copy: ofOtherHub, want: foreign},
		"OtherHubOnRecord": {
			reason: "somebody has changed the label of our copy", dispatch: testDispatch(withCopy), copy: ofOtherHub, want: current,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := observation{hubID: "hub", dispatch: test.dispatch}
			if f.dispatch == nil {
				f.dispatch = testDispatch()
			}
			if got := f.presenceOf(test.copy); got != test.want {
				t.Errorf("presenceOf() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	gone := func(d *v1alpha1.Dispatch) { now := metav1.Now(); d.DeletionTimestamp = &now }
	elsewhere := func(d *v1alpha1.Dispatch) { d.Spec.Cluster = "elsewhere" }
	waits := func(d *v1alpha1.Dispatch) { d.Spec.Cluster = "" }
	for name, test := range map[string]struct {
		reason      string
		observation observation
		want        state
	}{
		"NoDispatch": {
			reason:      "without a record nothing is done, whatever is on the worker",
			observation: observation{job: testJob("origin"), copy: testCopy("origin", "2")},
			want:        idle,
		},
		"PlacedElsewhere": {
			reason:      "another worker's mirror has this job; our copy of an older attempt is garbage collection's",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(elsewhere), copy: testCopy("origin", "1")},
			want:        idle,
		},
		"Waiting":   {reason: "no worker is chosen", observation: observation{job: testJob("origin"), dispatch: testDispatch(waits)}, want: idle},
		"NoCopyYet": {reason: "the copy is to be created", observation: observation{job: testJob("origin"), dispatch: testDispatch()}, want: absent},
		"CopyRuns": {
			reason:      "the usual case",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("origin", "2")},
			want:        mirrored,
		},
		"SecondCopy": {
			reason:      "an attempt has one copy; one that comes when that has gone is not the attempt's",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(withCopy), copy: testCopy("origin", "2", withUID("second"))},
			want:        copyDeleted,
		},
		"SecondCopyOfOneNotOnRecord": {
			reason: "as SecondCopy, but only this process knows of the first",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("origin", "2", withUID("second")), copied: true, uid: "copy",
			},
			want: copyDeleted,
		},
		"SecondCopyEnded": {
			reason: "nothing that it says is the job's",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(withCopy), copy: testCopy("origin", "2", withUID("second"), ended("Complete")),
			},
			want: copyDeleted,
		},
		"SecondCopyEvicted": {
			reason:      "it has to go too",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(withCopy, evicted), copy: testCopy("origin", "2", withUID("second"))},
			want:        evicting,
		},
		"CopyOfOlderAttempt": {
			reason:      "an old attempt never comes back: its copy must go before ours is created",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("origin", "1")},
			want:        blocked,
		},
		"CopyOfAnotherJob": {
			reason:      "a copy that the record does not speak of is not ours to touch",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("other", "2")},
			want:        conflicting,
		},
		"CopyBeingDeleted": {
			reason:      "its end is awaited before anything else is done",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("origin", "2", deleting)},
			want:        blocked,
		},
		"CopyComplete": {
			reason:      "the hub must say so",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("origin", "2", ended("Complete"))},
			want:        finished,
		},
		"CopyFailedAndBeingDeleted": {
			reason:      "the end counts, even of a copy that goes",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("origin", "2", ended("Failed"), deleting)},
			want:        finished,
		},
		"HubSaysCompleteDispatchDoesNot": {
			reason:      "a crash between the two writes: the second is made, with or without the copy",
			observation: observation{job: testJob("origin", ended("Complete")), dispatch: testDispatch()},
			want:        finished,
		},
		"Finished": {
			reason:      "nothing is done for finished jobs, not even when the copy goes",
			observation: observation{job: testJob("origin", ended("Complete")), dispatch: testDispatch(condition("Finished", "True", 2))},
			want:        idle,
		},
		"Rejected": {
			reason:      "the attempt is over, placement decides",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(condition("Mirrored", "False", 2))},
			want:        idle,
		},
		"RejectedBefore": {
			reason:      "what an earlier attempt met says nothing of this one",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(condition("Mirrored", "False", 1))},
			want:        absent,
		},
		"WorkerIsBack": {
			reason:      "that is on record before anything else is done: somebody may be giving the attempt up",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(condition("WorkerLost", "True", 2)), copy: testCopy("origin", "2")},
			want:        returned,
		},
		"WorkerIsBackAndTheCopyHasEnded": {
			reason: "even then",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(condition("WorkerLost", "True", 2)), copy: testCopy("origin", "2", ended("Complete")),
			},
			want: returned,
		},
		"WorkerIsBackTooLate": {
			reason: "the attempt was given up; its copy is garbage collection's",
			observation: observation{
				job: testJob("origin"), dispatch: testDispatch(condition("Mirrored", "False", 2)), copy: testCopy("origin", "2", ended("Complete")),
			},
			want: idle,
		},
		"WorkerIsBackAndTheJobGone": {
			reason:      "the copy has to go, whoever says so first",
			observation: observation{dispatch: testDispatch(condition("WorkerLost", "True", 2)), copy: testCopy("origin", "2")},
			want:        withdrawing,
		},
		"OriginEdited": {
			reason:      "a copy with the UID on record is ours, whatever it says",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(withCopy), copy: testCopy("other", "2")},
			want:        mirrored,
		},
		"AttemptEdited": {
			reason:      "and of this attempt",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(withCopy), copy: testCopy("origin", "9")},
			want:        mirrored,
		},
		"MarksEditedBeforeTheReport": {
			reason:      "this process knows the UID of what it created",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copy: testCopy("other", "x"), copied: true, uid: "copy"},
			want:        mirrored,
		},
		"MarksEditedAndTheJobGone": {
			reason:      "nothing of a job that is gone may stay",
			observation: observation{dispatch: testDispatch(withCopy), copy: testCopy("other", "2")},
			want:        withdrawing,
		},
		"MarksEditedAndEvicted": {
			reason:      "it is ours to stop",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(withCopy, evicted), copy: testCopy("other", "2")},
			want:        evicting,
		},
		"AnotherJobInPlaceOfAnEvictedCopy": {
			reason:      "the eviction goes on, and its outcome is that of the eviction",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(withCopy, evicted), copy: testJob("foreign")},
			want:        evicting,
		},
		"AnotherJobInPlaceOfTheCopy": {
			reason:      "the pods of ours may run on, so the worker is asked before the attempt ends",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(condition("Mirrored", "True", 2)), copy: testCopy("other", "2")},
			want:        copyDeleted,
		},
		"CopyDeletedByHand": {
			reason:      "there was a copy of this attempt, and a second must not be made in its name",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(condition("Mirrored", "True", 2))},
			want:        copyDeleted,
		},
		"CopyDeletedBeforeTheDispatchSaidRunning": {
			reason:      "this process remembers the copy",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(), copied: true},
			want:        copyDeleted,
		},
		"JobGone": {
			reason:      "the copy goes first",
			observation: observation{dispatch: testDispatch(), copy: testCopy("origin", "2")},
			want:        withdrawing,
		},
		"JobGoneCopyOfOlderAttempt": {
			reason:      "every copy of the job goes, of whichever attempt",
			observation: observation{dispatch: testDispatch(), copy: testCopy("origin", "1")},
			want:        withdrawing,
		},
		"JobGoneAndCopyGone": {reason: "then the Dispatch", observation: observation{dispatch: testDispatch()}, want: released},
		"JobGoneForeignCopy": {
			reason:      "what is not ours does not hold the Dispatch",
			observation: observation{dispatch: testDispatch(), copy: testCopy("other", "2")},
			want:        released,
		},
		"JobBeingDeleted": {
			reason:      "foreground deletion waits for us",
			observation: observation{job: testJob("origin", deleting), dispatch: testDispatch(), copy: testCopy("origin", "2")},
			want:        withdrawing,
		},
		"JobRecreated": {
			reason:      "the same name, another job: what there was for the old one goes",
			observation: observation{job: testJob("new"), dispatch: testDispatch(), copy: testCopy("origin", "2")},
			want:        withdrawing,
		},
		"DispatchDeletedByHand": {
			reason:      "an eviction: the copy goes, then the Dispatch, and placement makes another",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(gone), copy: testCopy("origin", "2")},
			want:        withdrawing,
		},
		"EvictedWhileItRuns": {
			reason:      "the copy is to be stopped",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted), copy: testCopy("origin", "2")},
			want:        evicting,
		},
		"EvictedBeforeTheCopy": {
			reason:      "none is to be created any more",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted)},
			want:        evicting,
		},
		"EvictedCopyBeingDeleted": {
			reason:      "whoever deletes it, its end is awaited",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted), copy: testCopy("origin", "2", deleting)},
			want:        evicting,
		},
		"EvictedCopyGone": {
			reason:      "the attempt ends with the eviction, and not because somebody deleted the copy",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted, condition("Mirrored", "True", 2)), copied: true},
			want:        evicting,
		},
		"EvictedCopyComplete": {
			reason:      "what has finished is not to be stopped",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted), copy: testCopy("origin", "2", ended("Complete"))},
			want:        finished,
		},
		"EvictedCopyFailedAndBeingDeleted": {
			reason:      "the end counts, even if it came while the copy was being stopped",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted), copy: testCopy("origin", "2", ended("Failed"), deleting)},
			want:        finished,
		},
		"EvictedHubSaysComplete": {
			reason:      "the end is final, with or without the copy",
			observation: observation{job: testJob("origin", ended("Complete")), dispatch: testDispatch(evicted)},
			want:        finished,
		},
		"EvictedAfterTheEnd": {
			reason:      "it has no object",
			observation: observation{job: testJob("origin", ended("Complete")), dispatch: testDispatch(evicted, condition("Finished", "True", 2))},
			want:        idle,
		},
		"EvictedAndDone": {
			reason:      "the attempt is over, placement decides and takes the eviction away",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted, condition("Mirrored", "False", 2))},
			want:        idle,
		},
		"EvictedCopyOfOlderAttempt": {
			reason:      "the job must not be placed elsewhere while an old copy of it may run",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted), copy: testCopy("origin", "1")},
			want:        blocked,
		},
		"EvictedCopyOfAnotherJob": {
			reason:      "the attempt ends, and the next must not be made there",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted), copy: testCopy("other", "2")},
			want:        conflicting,
		},
		"EvictedJobGone": {
			reason:      "there is nothing to place again",
			observation: observation{dispatch: testDispatch(evicted), copy: testCopy("origin", "2")},
			want:        withdrawing,
		},
		"EvictedOnAnotherCluster": {
			reason:      "the copy is where the name does not lead any more",
			observation: observation{job: testJob("origin"), dispatch: testDispatch(evicted), otherCluster: true},
			want:        misplaced,
		},
		"FinishedJobGone": {
			reason:      "a retained copy does not outlive its job",
			observation: observation{dispatch: testDispatch(condition("Finished", "True", 2)), copy: testCopy("origin", "2", ended("Complete"))},
			want:        withdrawing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.observation.hubID = "hub"
			if got := decide("here", test.observation); got != test.want {
				t.Errorf("decide() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}
