// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

const arrivalTime = remote.CreationTimeout

// A worker that is taken over claims a job that runs on another worker: it has a copy of a later attempt. The job goes
// on running on its worker, in its attempt. When the job has to leave that worker, the false copy does not delay it.
func TestAttackCopyOfAJobThatRunsElsewhere(t *testing.T) {
	for name, attempt := range map[string]string{"NextAttempt": "3", "LastAttempt": "2147483647"} {
		for when, prepare := range map[string]func(*testing.T, *scene, *v1alpha1.Dispatch, *unstructured.Unstructured){
			"OnRecord": func(t *testing.T, s *scene, d *v1alpha1.Dispatch, there *unstructured.Unstructured) {
				d.Status.CopyUID = there.GetUID()
				s.SetCondition(t, d, v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonCopied)
			},
			"JustCreated": func(*testing.T, *scene, *v1alpha1.Dispatch, *unstructured.Unstructured) {},
		} {
			t.Run(name+when, func(t *testing.T) {
				s := newScene(t)
				s.quarantine.Begin()
				job := s.submit(t)
				d := s.place(t, job.GetUID(), otherName, 2)
				prepare(t, s, d, s.createCopyOn(t, otherName, job.GetUID(), "2"))
				made := s.createCopy(t, job.GetUID(), attempt)
				s.sweep(t, otherName)
				s.sweep(t, workerName)
				for range 2 {
					s.Clock.Step(24 * time.Hour)
					s.collect(t)
					s.collectOn(t, otherName, s.key)
				}
				if now := s.dispatch(t); now.Spec.Cluster != otherName || now.Spec.Attempt != 2 {
					t.Errorf("the Dispatch has %+v: a worker has taken a job that runs elsewhere", now.Spec)
				}
				if there := s.copyOn(t, otherName); there == nil || there.GetDeletionTimestamp() != nil {
					t.Errorf("the copy that runs was deleted: %v", there)
				}
				s.expectDoubted(t, made, v1alpha1.ReasonRunsElsewhere, `worker "other" has the copy that is on record, of attempt 2`)
				if worker, ok := s.quarantine.Of(s.key, job.GetUID()); ok {
					t.Errorf("Of() = %q: the job could not be placed anew", worker)
				}
				if holds, _ := s.quarantine.Holds(t.Context(), s.dispatch(t)); holds {
					t.Error("the job's copy could not be created anew")
				}
				s.restart() // A new process does not believe the worker either, in any state of the job.
				s.SetCondition(t, s.dispatch(t), v1alpha1.DispatchMirrored, metav1.ConditionFalse, string(v1alpha1.OutcomePreempted))
				s.sweep(t, workerName)
				s.collect(t)
				if now := s.dispatch(t); now.Spec.Cluster != otherName || now.Spec.Attempt != 2 {
					t.Errorf("after the end of the attempt the Dispatch has %+v", now.Spec)
				}
			})
		}
	}
}

// expectDoubted checks that a copy is left alone, and that the worker's status and an Event say why it is not believed.
func (s *scene) expectDoubted(t *testing.T, copy *unstructured.Unstructured, reason, words string) {
	t.Helper()
	if now := s.copy(t); now == nil || now.GetUID() != copy.GetUID() || now.GetDeletionTimestamp() != nil {
		t.Errorf("the copy was not left alone: %v", now)
	}
	listed := s.report(t, workerName).Status.UnknownCopies
	if len(listed) != 1 || listed[0].UID != copy.GetUID() || listed[0].Reason != reason || !strings.Contains(listed[0].Message, words) {
		t.Errorf("status.unknownCopies has %+v, want the copy with %s: %s", listed, reason, words)
	}
	if told := s.told(t, reason+": "); told != 1 {
		t.Errorf("%d Events tell of %s, want 1", told, reason)
	}
}

// The worker on record does not answer. So nobody knows whether the job runs there, and no other worker is believed.
// When the worker answers that it does not have the job, the hub was restored from a backup.
func TestAttackWhileTheWorkerOnRecordIsAway(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), otherName, 2)
	made := s.createCopy(t, job.GetUID(), "3")
	others := s.options[workerName].Others
	away := true
	s.options[workerName].Others = func(name v1alpha1.ClusterName, id types.UID) (copies.Connection, bool) {
		worker, ok := others(name, id)
		return worker, ok && !away
	}
	s.restart()
	s.sweep(t, workerName)
	s.Clock.Step(time.Hour)
	if result := s.collect(t); result.RequeueAfter == 0 {
		t.Error("the worker on record is not asked again")
	}
	s.expectDoubted(t, made, v1alpha1.ReasonNotAsked, `attempt 2 is on worker "other", which does not answer`)
	if worker, ok := s.quarantine.Of(s.key, job.GetUID()); !ok {
		t.Errorf("Of() = %q: the job could run twice", worker)
	}
	away = false
	s.collect(t)
	s.expectAdopted(t, job, 3)
}

// A copy of a waiting job appears on a worker that the manager has watched all the time. Nobody has requested it.
func TestAttackCopyThatNobodyAskedFor(t *testing.T) {
	s := newScene(t)
	s.quarantine.Begin()
	s.sweep(t, workerName)
	s.Clock.Step(arrivalTime)
	job := s.submit(t)
	s.place(t, job.GetUID(), "", 2)
	made := s.createCopy(t, job.GetUID(), "3")
	s.sweep(t, workerName) // The worker has been away for a moment.
	s.collect(t)
	if d := s.dispatch(t); d.Spec.Cluster != "" || d.Spec.Attempt != 2 {
		t.Errorf("a worker has taken a job that waits: %+v", d.Spec)
	}
	s.expectDoubted(t, made, v1alpha1.ReasonAppearedLate, "was not there when this manager looked at the worker for the first time")
	s.restart()
	s.sweep(t, workerName)
	s.collect(t)
	check.Equal(t, "", s.dispatch(t).Spec.Cluster, "after a restart the worker is believed")
	s.decide(t, made, "Adopt")
	s.collect(t)
	s.told(t, "")
	if d := s.dispatch(t); d.Spec.Cluster != workerName || d.Spec.Attempt != 3 {
		t.Errorf("an admin has decided, and the Dispatch has %+v", d.Spec)
	}
}

// A worker that was watched all the time shows copies with the name of a waiting job, whose UID it does not know. Of a
// copy that was there at the beginning the job may be a successor, on a hub that was restored: that job waits.
func TestAttackNameOfAJobThatWaits(t *testing.T) {
	cases := map[string]struct {
		reason string
		late   bool
		waits  bool
	}{
		"Late":  {"Nobody has asked for the copy.", true, false},
		"Found": {"The job may have been created anew after the hub was restored.", false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.quarantine.Begin()
			if tc.late {
				s.sweep(t, workerName)
				s.Clock.Step(arrivalTime)
			}
			job := s.submit(t)
			s.createCopy(t, "an-origin-that-the-hub-does-not-know", "1")
			s.sweep(t, workerName)
			s.collect(t)
			if worker, waits := s.quarantine.Of(s.key, job.GetUID()); waits != tc.waits {
				t.Errorf("%s\nOf() = %q, %t", tc.reason, worker, waits)
			}
			if worker, waits := s.quarantine.Of(s.key, "an-origin-that-the-hub-does-not-know"); !waits {
				t.Errorf("Of() = %q for the job of the copy's origin: it could run twice", worker)
			}
		})
	}
}

// A worker shows an attempt that the hub cannot have reached since any backup. The job keeps its own attempt.
func TestAttackLastAttemptOfAJobThatWaits(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), "", 2)
	made := s.createCopy(t, job.GetUID(), "2147483647")
	s.sweep(t, workerName)
	s.collect(t)
	if d := s.dispatch(t); d.Spec.Attempt != 2 {
		t.Fatalf("the worker is believed: %+v", d.Spec)
	}
	s.expectDoubted(t, made, v1alpha1.ReasonAttemptTooHigh, "the hub knows of attempt 2, and accepts at most 1000 attempts more from a worker")
	s.decide(t, made, "Adopt")
	s.collect(t)
	check.Equal(t, 1, s.told(t, "it would get attempt 2147483647"), "Events that say why the copy cannot be adopted")
	must(t, s.Worker(workerName).Admin.Delete(t.Context(), made))
	s.settle(t)
	s.collect(t)
	tombstone := &v1alpha1.Tombstone{}
	must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(job.GetUID())}, tombstone))
	t.Cleanup(func() { must(t, s.Hub.Admin.Delete(context.WithoutCancel(t.Context()), tombstone)) })
	check.Equal(t, 1002, tombstone.Spec.Attempt, "the hub goes on counting from")
}

// A false copy on another worker, with an impossible attempt, does not keep the hub from adopting the right copy.
func TestAttackHigherOtherAttempt(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), "", 2)
	s.createCopyOn(t, otherName, job.GetUID(), "2147483647")
	s.createCopy(t, job.GetUID(), "3")
	s.sweep(t, otherName)
	s.sweep(t, workerName)
	s.collectOn(t, otherName, s.key)
	s.told(t, "")
	s.collect(t)
	if d := s.dispatch(t); d.Spec.Cluster != workerName || d.Spec.Attempt != 3 {
		t.Errorf("the Dispatch has %+v", d.Spec)
	}
	s.collect(t)
	s.collectOn(t, otherName, s.key)
	if worker, ok := s.quarantine.Of(s.key, job.GetUID()); ok {
		t.Errorf("Of() = %q: the job could not be placed anew", worker)
	}
}
