// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The job goes on without a Dispatch, so only its Tombstone knows the last attempt. The Tombstone stays until a
// Dispatch has a higher attempt, or the job ends. The copy that the Tombstone names is deleted at once.
func TestTombstoneKeepsTheAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		then   func(*testing.T, *scene, *trainer.TrainJob)
		stands bool
	}{
		"Nothing":  {"the next attempt is a higher one", func(*testing.T, *scene, *trainer.TrainJob) {}, true},
		"Dispatch": {"it knows the attempt", func(t *testing.T, s *scene, job *trainer.TrainJob) { s.place(t, job.GetUID(), otherName, 4) }, false},
		"Lower": {"a Dispatch of a lower attempt does not", func(t *testing.T, s *scene, job *trainer.TrainJob) {
			s.place(t, job.GetUID(), otherName, 2)
		}, true},
		"OtherDispatch": {"nor does that of an earlier job", func(t *testing.T, s *scene, _ *trainer.TrainJob) {
			s.place(t, "earlier", otherName, 4)
		}, true},
		"Gone": {"there is no next attempt", func(t *testing.T, s *scene, job *trainer.TrainJob) {
			must(t, s.Hub.Admin.Delete(t.Context(), job))
		}, false},
		"Complete": {"nor is there then", func(t *testing.T, s *scene, job *trainer.TrainJob) { s.complete(t, job) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			job := s.submit(t)
			s.createCopy(t, job.GetUID(), "3")
			tombstone := s.addTombstone(t, job.GetUID(), workerName, 3)
			key := client.ObjectKey{Name: tombstone.Name}
			s.collectOn(t, workerName, key)
			expectDeleted(t, s.copy(t))
			s.finishDeletion(t, workerName)
			s.settle(t)

			test.then(t, s, job)
			s.collectOn(t, workerName, key)
			err := s.Hub.Admin.Get(t.Context(), key, tombstone)
			must(t, client.IgnoreNotFound(err))
			check.Equal(t, test.stands, err == nil, "the Tombstone stands: %s", test.reason)
		})
	}
}

// Somebody deleted unknown copies of a job. The workers' agents remember their attempts, and so does the hub.
func TestAttemptOfUnknownCopyIsKept(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	here, there := s.createCopy(t, job.GetUID(), "3"), s.createCopyOn(t, otherName, job.GetUID(), "3")
	s.sweep(t, workerName)
	s.sweep(t, otherName)
	s.collect(t)
	s.collectOn(t, otherName, s.key)
	must(t, s.Worker(workerName).Admin.Delete(t.Context(), here))
	must(t, s.Worker(otherName).Admin.Delete(t.Context(), there))
	s.settle(t)

	s.collect(t)
	s.collectOn(t, otherName, s.key)
	if worker, ok := s.quarantine.Of(s.key, job.GetUID()); ok {
		t.Fatalf("Of() = %q after both copies have gone", worker)
	}
	tombstone := &v1alpha1.Tombstone{}
	must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(job.GetUID())}, tombstone))
	if tombstone.Spec.Attempt != 3 || tombstone.Spec.TrainJob.UID != job.GetUID() {
		t.Errorf("what is on record is %+v, want attempt 3 of the job", tombstone.Spec)
	}
}

// A Tombstone that was kept for its attempt is deleted when the watch shows the Dispatch.
func TestKeptTombstoneGoes(t *testing.T) {
	p := newPlant(t)
	must(t, p.members.Join(workerName, p.Worker(workerName).Connection))
	job := p.submit(t)
	tombstone := p.addTombstone(t, job.GetUID(), workerName, 3)
	p.place(t, job.GetUID(), otherName, 4)
	eventually(t, "end of the Tombstone", func(g gomega.Gomega) {
		g.Expect(apierrors.IsNotFound(p.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(tombstone), tombstone))).To(gomega.BeTrue())
	})
}
