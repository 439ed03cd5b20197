// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A worker that was forgotten has given its jobs to another worker. When it returns, what its copies name stays until they are
// gone, also what has changed on the hub since, and goes then.
func TestForgottenWorkerReturns(t *testing.T) {
	s := newScene(t)
	secret := s.secret("hf", "one")
	s.create(t, secret)
	d := s.place(t, "job", "hf")
	s.bring(t, d)
	copy := s.copyOf(t, "job", "Secret/hf")
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = "another", "id-of-another", d.Spec.Attempt+1
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.settleDispatch(t, d)
	s.restart() // The worker is connected again.
	s.reconcile(t)
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.expectToken(t, "hf", "one")
	must(t, s.worker.Admin.Delete(t.Context(), copy))
	s.worker.SettleCopy(t, s.Key("job"))
	s.reconcile(t)
	s.expectToken(t, "hf", "")
	s.expectRecord(t, "")
}

// The record is lost: the hub was restored from a backup that is older than the Secret, or the WorkerCluster was deleted and
// registered again. A job that needs the Secret, or has a copy that was adopted, has it on record again, and it goes with the
// job.
func TestRecordIsLost(t *testing.T) {
	for name, adopted := range map[string]bool{"NextJob": false, "Adopted": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			secret := s.secret("hf", "one")
			s.create(t, secret)
			d := s.place(t, "job", "hf")
			s.bring(t, d)
			copy := s.copyOf(t, "job", "Secret/hf")
			s.ChangeWorker(t, workerName, func(w *v1alpha1.WorkerCluster) { w.Status.Dependencies = nil })
			secret.Data["token"] = []byte("two")
			must(t, s.Hub.Admin.Update(t.Context(), secret))
			s.settleHub(t, secret)
			if !adopted {
				s.end(t, d)
				must(t, s.worker.Admin.Delete(t.Context(), copy))
				s.worker.SettleCopy(t, s.Key("job"))
			}
			s.restart()
			s.Clock.Step(time.Minute)
			s.reconcile(t)
			if !adopted {
				s.expectToken(t, "hf", "one") // Nothing says that it is there, and nothing is deleted by absence.
				d = s.place(t, "next", "hf")
				s.bring(t, d)
			}
			s.expectToken(t, "hf", "two")
			s.expectRecord(t, "Secret/hf")
			s.end(t, d)
			must(t, client.IgnoreNotFound(s.worker.Admin.Delete(t.Context(), copy)))
			s.worker.SettleCopy(t, s.Key("job"))
			s.reconcile(t)
			s.expectToken(t, "hf", "")
			s.expectRecord(t, "")
		})
	}
}

// The policy brings Secrets no more. That counts when a job is placed: a job that is there keeps its Secret, which is kept up
// to date, and a job that is placed after that keeps nothing.
func TestPolicyIsTakenBack(t *testing.T) {
	s := newScene(t)
	secret := s.secret("hf", "one")
	s.create(t, secret)
	d := s.place(t, "job", "hf")
	s.bring(t, d)
	after := s.place(t, "after")
	s.bring(t, after)
	secret.Data["token"] = []byte("two")
	must(t, s.Hub.Admin.Update(t.Context(), secret))
	s.settleHub(t, secret)
	s.reconcile(t)
	s.expectToken(t, "hf", "two")
	s.end(t, d)
	s.reconcile(t)
	s.expectToken(t, "hf", "")
	s.expectRecord(t, "")
}
