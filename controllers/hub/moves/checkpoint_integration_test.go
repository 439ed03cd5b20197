// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

// ran writes what mirror writes of a job that runs, and of the last checkpoint that it has reported.
func (s *scene) ran(t *testing.T, name string, since time.Time, checkpoint *v1alpha1.SavedCheckpoint) {
	t.Helper()
	d, ran := s.Dispatch(t, name), metav1.NewTime(since)
	d.Status.FirstRunningTime, d.Status.LastCheckpoint = &ran, checkpoint
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), d))
}

// saved is a checkpoint that the hub has seen now.
func (s *scene) saved(name string) *v1alpha1.SavedCheckpoint {
	return &v1alpha1.SavedCheckpoint{Name: name, Time: metav1.NewTime(s.Clock.Now())}
}

// Among jobs of equal priority, a drain moves those first that lose the least.
func TestDrainMovesFirstWhatLosesLeast(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{MaxConcurrentMoves: new(int32(2))})
	worker := s.Register(t, "a", drain)
	for _, name := range []string{"old", "young", "saved"} {
		s.place(t, name, worker)
	}
	now := s.Clock.Now()
	s.ran(t, "old", now.Add(-2*time.Hour), nil)
	s.ran(t, "young", now.Add(-time.Hour), nil)
	s.ran(t, "saved", now.Add(-3*time.Hour), s.saved("1200"))
	s.reconcile(t, worker)
	s.wantEvicted(t, "two may move", "saved Drained", "young Drained")
}

// A job that reports checkpoints moves after the next one, or after maxWait. A job that reports none moves at once.
func TestDrainWaitsForACheckpoint(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{
		MaxConcurrentMoves: new(int32(3)),
		Checkpoint:         &v1alpha1.Checkpointing{MaxWait: &metav1.Duration{Duration: 10 * time.Minute}},
	})
	worker := s.Register(t, "a")
	for _, name := range []string{"saves", "hangs", "silent"} {
		s.place(t, name, worker)
	}
	began := s.Clock.Now()
	s.ran(t, "saves", began, s.saved("1200"))
	s.ran(t, "hangs", began, s.saved("1200"))
	s.Clock.Step(time.Minute)
	s.ChangeWorker(t, worker, drain)
	check.Equal(t, 10*time.Minute, s.reconcile(t, worker).RequeueAfter.Round(time.Second), "the wait ends after")
	s.wantEvicted(t, "nobody knows whether it saves anything", "silent Drained")
	if since := record.AwaitsCheckpointSince(s.Dispatch(t, "saves")); since.IsZero() {
		t.Errorf("the Dispatch does not say that the job waits: %+v", s.Dispatch(t, "saves").Status.Conditions)
	}
	s.Clock.Step(4 * time.Minute)
	s.restart()
	if left := s.reconcile(t, worker).RequeueAfter; left > 6*time.Minute+time.Second {
		t.Errorf("after 4 minutes and a restart, the wait ends after %s", left)
	}
	s.wantEvicted(t, "the others may still save", "silent Drained")

	s.ran(t, "saves", began, s.saved("1300"))
	s.reconcile(t, worker)
	s.wantEvicted(t, "it has saved another checkpoint", "saves Drained", "silent Drained")
	s.Clock.Step(6*time.Minute + time.Second)
	s.reconcile(t, worker)
	s.wantEvicted(t, "it has had its time", "hangs Drained", "saves Drained", "silent Drained")
}

// A job that waits for its checkpoint keeps its room, although there is none for another job like it.
func TestRoomIsKeptWhileACheckpointIsAwaited(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Checkpoint: &v1alpha1.Checkpointing{MaxWait: &metav1.Duration{Duration: time.Hour}}})
	worker := s.Register(t, "a", drain)
	for _, name := range []string{"saves", "young"} {
		s.place(t, name, worker)
	}
	s.ran(t, "saves", s.Clock.Now(), s.saved("1200"))
	s.Clock.Step(30 * time.Minute)
	s.ran(t, "young", s.Clock.Now(), nil) // It loses the least, and so it is the first.
	s.room.lacks = map[string]string{"young": "lacks room"}
	s.reconcile(t, worker)
	s.room.alike = true
	s.reconcile(t, worker)
	saves := s.Dispatch(t, "saves")
	if record.AwaitsCheckpointSince(saves).IsZero() || !s.room.kept[saves.Spec.TrainJob.UID] {
		t.Errorf("the job that saves has lost its room: %+v", saves.Status.Conditions)
	}
	check.Equal(t, true, record.HasNoRoomElsewhere(s.Dispatch(t, "young")), "the other one has no room")
}

// A drain that is taken back says nothing more of a checkpoint.
func TestWaitForACheckpointIsTakenBack(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Checkpoint: &v1alpha1.Checkpointing{MaxWait: &metav1.Duration{Duration: time.Minute}}})
	worker := s.Register(t, "a", drain)
	s.place(t, "saves", worker)
	s.ran(t, "saves", s.Clock.Now(), s.saved("1200"))
	s.reconcile(t, worker)
	if !record.Stays(s.Dispatch(t, "saves")) || record.HasNoRoomElsewhere(s.Dispatch(t, "saves")) {
		t.Errorf("the Dispatch says %+v", s.Dispatch(t, "saves").Status.Conditions)
	}
	s.ChangeWorker(t, worker, undrain)
	s.reconcile(t, worker)
	if record.Stays(s.Dispatch(t, "saves")) {
		t.Errorf("the Dispatch says %+v", s.Dispatch(t, "saves").Status.Conditions)
	}
}
