// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// A hub that was restored from an older backup knows fewer attempts than there have been. The manager puts each copy of
// a living job on record, and places no such job a second time.
func TestRestoredHubAdoptsLaterAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// record makes the hub's record of the job; nil: there is no Dispatch.
		record func(*testing.T, *scene, client.Object)
	}{
		"Elsewhere":  {reason: "the job has moved since the backup", record: func(t *testing.T, s *scene, job client.Object) { s.place(t, job.GetUID(), otherName, 2) }},
		"Here":       {reason: "it has come back since the backup", record: func(t *testing.T, s *scene, job client.Object) { s.place(t, job.GetUID(), workerName, 1) }},
		"Waiting":    {reason: "it waited at the time of the backup", record: func(t *testing.T, s *scene, job client.Object) { s.place(t, job.GetUID(), "", 2) }},
		"NoDispatch": {reason: "it was placed for the first time after the backup"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			job := s.submit(t)
			if test.record != nil {
				test.record(t, s, job)
			}
			copy := s.createCopy(t, job.GetUID(), "3")
			s.sweep(t, workerName)
			if worker, ok := s.quarantine.Of(s.key, job.GetUID()); !ok || worker != workerName {
				t.Errorf("Of() = %q, %t after the sweep: the job could be placed a second time: %s", worker, ok, test.reason)
			}
			if !s.brought.has(workerName, s.key) {
				t.Error("nobody looks at the copy after the sweep")
			}
			if result := s.collect(t); result.RequeueAfter > 0 { // A creation on the worker on record may be under way.
				s.told(t, "")
				s.Clock.Step(result.RequeueAfter)
				s.collect(t)
			}
			s.expectAdopted(t, job, 3)
			if now := s.copy(t); now.GetUID() != copy.GetUID() || now.GetDeletionTimestamp() != nil {
				t.Errorf("the copy did not go on: %v", now)
			}
		})
	}
}

// The highest attempt wins, in whatever order the manager looks at the workers. The other copies are outdated then.
func TestRestoredHubTakesTheHighestAttempt(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.createCopyOn(t, otherName, job.GetUID(), "2")
	s.createCopy(t, job.GetUID(), "3")
	s.sweep(t, otherName)
	s.sweep(t, workerName)
	if !s.brought.has(otherName, s.key) {
		t.Error("the other worker is not told of the other attempt")
	}
	s.collectOn(t, otherName, s.key)
	if d := s.dispatch(t); d != nil {
		t.Fatalf("the lower attempt was adopted: %+v", d.Spec)
	}
	s.collect(t)
	s.collectOn(t, otherName, s.key)
	expectDeleted(t, s.copyOn(t, otherName))
	s.expectAdopted(t, job, 3)
}

// Two copies have the same attempt, and nobody knows which is right. Both stay until an admin has decided.
func TestEqualAttemptsAreQuarantined(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), "", 2)
	there := s.createCopyOn(t, otherName, job.GetUID(), "3")
	here := s.createCopy(t, job.GetUID(), "3")
	s.sweep(t, otherName)
	s.sweep(t, workerName)
	for range 2 {
		s.collect(t)
		s.collectOn(t, otherName, s.key)
	}
	s.expectListed(t, s.report(t, workerName), here)
	if listed := s.report(t, otherName).Status.UnknownCopies; len(listed) != 1 || listed[0].UID != there.GetUID() {
		t.Errorf("the other worker lists %+v, want its copy", listed)
	}
	check.Equal(t, "", s.dispatch(t).Spec.Cluster, "one of two equal copies was adopted")

	s.decide(t, here, "Adopt")
	s.collect(t)
	s.collect(t)
	s.told(t, "nothing")
	if d := s.dispatch(t); d.Spec.Cluster != workerName || d.Spec.Attempt != 4 {
		t.Errorf("after the decision the Dispatch has %+v", d.Spec)
	}
	s.collectOn(t, otherName, s.key)
	expectDeleted(t, s.copyOn(t, otherName))
	if now := s.copy(t); now.GetUID() != here.GetUID() || now.GetDeletionTimestamp() != nil {
		t.Errorf("the chosen copy did not go on: %v", now)
	}
}

// When the first of two copies with the same attempt is gone, the second belongs to the job.
func TestLastOfEqualAttemptsIsAdopted(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	there := s.createCopyOn(t, otherName, job.GetUID(), "3")
	s.createCopy(t, job.GetUID(), "3")
	s.sweep(t, otherName)
	s.sweep(t, workerName)
	s.collect(t)
	s.collectOn(t, otherName, s.key)
	must(t, s.Worker(otherName).Admin.Delete(t.Context(), there))
	s.settle(t)
	*s.brought = mailbox{}
	s.collectOn(t, otherName, s.key)
	if !s.brought.has(workerName, s.key) {
		t.Error("nobody looks at the one that is left")
	}
	s.told(t, "")
	s.collect(t)
	s.expectAdopted(t, job, 3)
}

// A copy is not kept if the hub's own TrainJob says that the job has ended.
func TestCopyOfEndedJob(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.createCopy(t, job.GetUID(), "3")
	s.complete(t, job)
	s.collect(t)
	expectDeleted(t, s.copy(t))
	check.Equal(t, nil, s.dispatch(t), "a job that has ended was put on record")
}

// Adoption does not overwrite a decision that placement has written meanwhile: it starts again.
func TestAdoptionLosesARace(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	d := s.place(t, job.GetUID(), "", 2)
	s.createCopy(t, job.GetUID(), "3")
	before := stale{Client: s.Hub.Admin, seen: d.DeepCopy()}
	s.options[workerName].Hub, s.options[workerName].HubReader = before, before
	s.restart()
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = otherName, s.Worker(otherName).ID, 4
	must(t, s.Hub.Admin.Update(t.Context(), d))
	if result := s.collect(t); result.RequeueAfter == 0 {
		t.Error("after a conflict it is not tried again")
	}
	if now := s.dispatch(t); now.Spec.Cluster != otherName || now.Spec.Attempt != 4 {
		t.Errorf("the decision was overwritten: %+v", now.Spec)
	}
}

// stale is an API server that answers with an old version of a Dispatch.
type stale struct {
	client.Client
	seen *v1alpha1.Dispatch
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if d, is := object.(*v1alpha1.Dispatch); is {
		s.seen.DeepCopyInto(d)
		return nil
	}
	return s.Client.Get(ctx, key, object, options...)
}
