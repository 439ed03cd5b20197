// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

func newCopy(origin, attempt string, deleting bool) *unstructured.Unstructured {
	copy := trainjobs.New()
	copy.SetLabels(map[string]string{v1alpha1.LabelOriginUID: origin})
	copy.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: attempt})
	if deleting {
		now := metav1.Now()
		copy.SetDeletionTimestamp(&now)
	}
	return copy
}

// dispatchOn makes a Dispatch of the job "origin".
func dispatchOn(cluster v1alpha1.ClusterName, id types.UID, attempt int32, conditions ...metav1.Condition) *v1alpha1.Dispatch {
	return &v1alpha1.Dispatch{
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "origin"}, Cluster: cluster, ClusterID: id, Attempt: attempt,
		},
		Status: v1alpha1.DispatchStatus{Attempt: attempt, Conditions: conditions},
	}
}

func TestJudge(t *testing.T) {
	finished := metav1.Condition{Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue}
	mirrored := metav1.Condition{Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue}
	over := metav1.Condition{Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionFalse}
	overBefore := dispatchOn("here", "id", 2, over)
	overBefore.Status.Attempt = 1
	known := dispatchOn("here", "id", 2, mirrored)
	known.Status.CopyUID = "copy"
	knownEnd := dispatchOn("here", "id", 2, mirrored, finished)
	knownEnd.Status.CopyUID = "copy"
	tombstoneOf := func(id, origin types.UID, attempt int32) *v1alpha1.Tombstone {
		return &v1alpha1.Tombstone{Spec: v1alpha1.TombstoneSpec{
			Cluster: "before", ClusterID: id, TrainJob: v1alpha1.TrainJobReference{UID: origin}, Attempt: attempt,
		}}
	}
	for name, test := range map[string]struct {
		reason    string
		origin    string
		attempt   string
		namespace string
		uid       types.UID
		deleting  bool
		dispatch  *v1alpha1.Dispatch
		tombstone *v1alpha1.Tombstone
		want      copyState
	}{
		"Current":          {reason: "it runs", attempt: "2", dispatch: dispatchOn("here", "id", 2, mirrored), want: needed},
		"CurrentOld":       {reason: "a Dispatch may name no cluster ID", attempt: "2", dispatch: dispatchOn("here", "", 2), want: needed},
		"Finished":         {reason: "it waits for its retention", attempt: "2", dispatch: dispatchOn("here", "id", 2, mirrored, finished), want: ended},
		"FinishedKnown":    {reason: "it waits for its retention", attempt: "2", uid: "copy", dispatch: knownEnd, want: ended},
		"SecondCopy":       {reason: "it came when the copy that has finished was gone", attempt: "2", uid: "another", dispatch: knownEnd, want: outdated},
		"OldAttempt":       {reason: "the hub has moved on", attempt: "1", dispatch: dispatchOn("here", "id", 2), want: outdated},
		"OldAttemptOf":     {reason: "a finished job has one copy", attempt: "1", dispatch: dispatchOn("here", "id", 2, finished), want: outdated},
		"MovedAway":        {reason: "it runs elsewhere", attempt: "1", dispatch: dispatchOn("elsewhere", "other", 2), want: outdated},
		"AttemptEnded":     {reason: "the attempt was given up, and placement has not moved on yet", attempt: "2", dispatch: dispatchOn("here", "id", 2, over), want: outdated},
		"EarlierEnded":     {reason: "what has ended is the attempt before", attempt: "2", dispatch: overBefore, want: needed},
		"Renamed":          {reason: "the job was placed on this cluster, which has got another name", attempt: "2", dispatch: dispatchOn("elsewhere", "id", 2), want: needed},
		"RenamedOld":       {reason: "nothing says that it was this cluster", attempt: "2", dispatch: dispatchOn("elsewhere", "", 2), want: unknown},
		"OtherCluster":     {reason: "the name led to another cluster when the job was placed", attempt: "2", dispatch: dispatchOn("here", "other", 2), want: unknown},
		"Twice":            {reason: "the same attempt is on another worker", attempt: "2", dispatch: dispatchOn("elsewhere", "other", 2), want: unknown},
		"Waiting":          {reason: "this attempt has ended, the next has no worker yet", attempt: "2", dispatch: dispatchOn("", "", 2), want: outdated},
		"NoRecord":         {reason: "after a restore absence proves nothing", attempt: "2", want: unknown},
		"OtherOrigin":      {reason: "a job of this name that the hub does not know", origin: "other", attempt: "2", dispatch: dispatchOn("here", "id", 2), want: unknown},
		"Later":            {reason: "the hub was restored from before this attempt", attempt: "3", dispatch: dispatchOn("here", "id", 2), want: unknown},
		"NoAttempt":        {reason: "somebody took the annotation off", attempt: "", dispatch: dispatchOn("here", "id", 2), want: unknown},
		"Edited":           {reason: "it is the copy on record, whatever was written on it", origin: "other", attempt: "1", uid: "copy", dispatch: known, want: needed},
		"EditedLater":      {reason: "it is the copy on record", attempt: "7", uid: "copy", dispatch: known, want: needed},
		"EditedOther":      {reason: "another copy is on record", attempt: "1", uid: "another", dispatch: known, want: outdated},
		"Deleting":         {reason: "it is going already", attempt: "1", deleting: true, dispatch: dispatchOn("here", "id", 2), want: needed},
		"UnknownGoing":     {reason: "its job must wait until it is gone", attempt: "1", deleting: true, want: unknown},
		"Tombstone":        {reason: "its job was deleted while the worker was away", attempt: "2", tombstone: tombstoneOf("id", "origin", 2), want: outdated},
		"TombstoneGoing":   {reason: "it is going already", attempt: "2", deleting: true, tombstone: tombstoneOf("id", "origin", 2), want: needed},
		"TombstoneEarlier": {reason: "a Tombstone is about attempts up to its own", attempt: "3", tombstone: tombstoneOf("id", "origin", 2), want: unknown},
		"TombstoneThere":   {reason: "it is about another cluster", attempt: "2", tombstone: tombstoneOf("other", "origin", 2), want: unknown},
		"TombstoneOther":   {reason: "it is about another job", attempt: "2", tombstone: tombstoneOf("id", "other", 2), want: unknown},
		"TombstoneForged":  {reason: "a user of another namespace has written the UID on it", attempt: "2", namespace: "other", tombstone: tombstoneOf("id", "origin", 2), want: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if test.origin == "" {
				test.origin = "origin"
			}
			copy := newCopy(test.origin, test.attempt, test.deleting)
			copy.SetUID(test.uid)
			copy.SetNamespace(test.namespace)
			hub := hubRecords{dispatch: test.dispatch}
			if test.tombstone != nil {
				hub.tombstones = []v1alpha1.Tombstone{*tombstoneOf("elsewhere", "origin", 9), *test.tombstone}
			}
			got := judge(place{Cluster: "here", ClusterID: "id"}, copy, hub)
			if got != test.want {
				t.Errorf("judge() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}

func TestConsider(t *testing.T) {
	job := func(uid types.UID, managedBy string) *unstructured.Unstructured {
		job := trainjobs.New()
		job.SetUID(uid)
		job.Object["spec"] = map[string]any{"managedBy": managedBy}
		return job
	}
	ours := job("origin", "us")
	complete, going := job("origin", "us"), job("origin", "us")
	complete.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
	now := metav1.Now()
	going.SetDeletionTimestamp(&now)
	freed, kept := dispatchOn("here", "id", 2), dispatchOn("here", "id", 2)
	freed.DeletionTimestamp, kept.DeletionTimestamp = &now, &now
	kept.Finalizers = []string{v1alpha1.FinalizerCopy}
	for name, test := range map[string]struct {
		reason   string
		attempt  string
		deleting bool
		dispatch *v1alpha1.Dispatch
		job      *unstructured.Unstructured
		rival    int32
		want     copyState
	}{
		"Later":          {reason: "the attempt rises to that of the copy", attempt: "3", dispatch: dispatchOn("elsewhere", "other", 2), job: ours, want: adoptable},
		"LaterWaiting":   {reason: "the job runs here, and must not be placed again", attempt: "3", dispatch: dispatchOn("", "", 2), job: ours, want: adoptable},
		"NeverPlaced":    {reason: "it does by what the hub knows", attempt: "1", dispatch: dispatchOn("", "", 0), job: ours, want: adoptable},
		"DispatchLost":   {reason: "the job is there, its Dispatch is not", attempt: "3", job: ours, want: adoptable},
		"LowerRival":     {reason: "the highest attempt wins", attempt: "3", job: ours, rival: 2, want: adoptable},
		"HigherRival":    {reason: "the highest attempt wins", attempt: "3", job: ours, rival: 4, want: unknown},
		"EqualRival":     {reason: "which of the two is right nobody knows", attempt: "3", dispatch: dispatchOn("", "", 2), job: ours, rival: 3, want: unknown},
		"Over":           {reason: "the job has ended", attempt: "3", job: complete, want: outdated},
		"OverLater":      {reason: "the job has ended", attempt: "3", dispatch: dispatchOn("here", "id", 2), job: complete, want: outdated},
		"OverGoing":      {reason: "it is going already", attempt: "3", deleting: true, job: complete, want: needed},
		"JobGoing":       {reason: "the job was deleted, and no Dispatch waits for the copy", attempt: "3", job: going, want: outdated},
		"JobGoingLater":  {reason: "mirror deletes it, and then lets the Dispatch go", attempt: "3", dispatch: kept, job: going, want: adoptable},
		"DispatchFreed":  {reason: "it would not wait for the copy", attempt: "3", dispatch: freed, job: ours, want: postponed},
		"FinishedBefore": {reason: "no attempt follows one that has finished", attempt: "3", dispatch: dispatchOn("here", "id", 2, metav1.Condition{Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue}), job: ours, want: unknown},
		"NoJob":          {reason: "absence is no record of a deletion", attempt: "3", dispatch: dispatchOn("here", "id", 2), want: unknown},
		"OtherJob":       {reason: "the job has another origin", attempt: "3", job: job("other", "us"), want: unknown},
		"OtherDispatch":  {reason: "the name is taken", attempt: "3", dispatch: &v1alpha1.Dispatch{}, job: ours, want: unknown},
		"Foreign":        {reason: "the job is not ours", attempt: "3", job: job("origin", "them"), want: unknown},
		"Twice":          {reason: "the same attempt is on another worker", attempt: "2", dispatch: dispatchOn("elsewhere", "other", 2), job: ours, want: unknown},
		"NoAttempt":      {reason: "somebody took the annotation off", attempt: "", job: ours, want: unknown},
		"Going":          {reason: "somebody deletes it", attempt: "3", deleting: true, job: ours, want: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			copy := newCopy("origin", test.attempt, test.deleting)
			if got := consider(copy, hubRecords{dispatch: test.dispatch, job: test.job}, test.rival, "us"); got != test.want {
				t.Errorf("consider() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}
