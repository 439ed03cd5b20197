// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/kueue"
)

// The hub is cut off while a copy runs that Kueue has admitted. Kueue tries to start what the agent has stopped.
func TestFaultFencedWhileAdmitted(t *testing.T) {
	s := begin(t)
	job := s.submit()
	s.Runs(job, west, 1)
	s.admitted(job)
	s.stoppedInTime(job, s.cut())
	s.triesToStart(job)
	s.moves(job, west, south)
	s.cleared(job)
}

// Kueue admits the copy only after the deadline.
func TestFaultFencedBeforeAdmission(t *testing.T) {
	s := begin(t)
	s.hold()
	job := s.submit()
	s.isQueued(job)
	s.cut()
	s.fenced(job)
	s.stopPolicy("None")
	s.admitted(job)
	s.triesToStart(job)
	s.moves(job, south)
	s.cleared(job)
}

// Kueue is started again after the deadline.
func TestFaultFencedThenKueueRestarted(t *testing.T) {
	s := begin(t)
	job := s.submit()
	s.Runs(job, west, 1)
	s.admitted(job)
	s.stoppedInTime(job, s.cut())
	s.kill()
	s.restart()
	s.triesToStart(job)
	s.moves(job, west, south)
	s.cleared(job)
}

// Kueue does not run when the hub falls silent, and its webhooks refuse the suspension: the agent deletes the copy.
func TestFaultFencedWithoutKueue(t *testing.T) {
	s := begin(t)
	job := s.submit()
	s.Runs(job, west, 1)
	s.kill()
	s.stoppedInTime(job, s.cut())
	s.moves(job, west, south)
	s.restart()
	s.cleared(job)
}

// The hub is back before it gives the job up: the same copy goes on in the same attempt. Kueue starts it.
func TestFaultFencedWhileAdmittedAndBack(t *testing.T) {
	s := begin(t)
	job := s.submit()
	s.Runs(job, west, 1)
	before := copyOf(gomega.NewWithT(s), job).UID
	s.stoppedInTime(job, s.cut())
	s.heal()
	s.Runs(job, west, 1)
	s.Eventually(func(g gomega.Gomega) {
		copied := copyOf(g, job)
		g.Expect(copied.UID).To(gomega.Equal(before))
		g.Expect(copied.Annotations).NotTo(gomega.HaveKey(v1alpha1.AnnotationFenced))
	})
	s.Attempt(job, 1)
}

// Kueue takes the quota of a fenced copy back before the hub is back. The copy waits in the queue, in the same attempt.
func TestFaultFencedAndEvicted(t *testing.T) {
	s := begin(t)
	job := s.submit()
	s.Runs(job, west, 1)
	s.hold()
	s.stoppedInTime(job, s.cut())
	s.stopPolicy("HoldAndDrain")
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(kueue.IsTrue(workloadOf(g, job), "QuotaReserved")).To(gomega.BeFalse())
	})
	s.heal()
	s.isQueued(job)
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(copyOf(g, job).Annotations).NotTo(gomega.HaveKey(v1alpha1.AnnotationFenced))
	})
	s.stopPolicy("None")
	s.Runs(job, west, 1)
}

// The worker lacks the policy that keeps fenced copies suspended: Kueue starts the copy, the agent deletes it and says
// why, and the job is placed again. That its pods do not run after the deadline is not promised.
func TestFaultFencedWithoutPolicy(t *testing.T) {
	s := begin(t)
	s.Overlaps = true
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	binding.Name = "trainyard-fence"
	s.Must(w.Workers[west].Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	s.Must(w.Workers[west].Delete(t.Context(), binding.DeepCopy()))
	t.Cleanup(func() {
		binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name}
		s.Must(w.Workers[west].Create(context.Background(), binding))
	})
	job := s.submit()
	s.Runs(job, west, 1)
	s.cut()
	s.Eventually(func(g gomega.Gomega) {
		var events eventsv1.EventList
		g.Expect(w.Workers[west].List(t.Context(), &events, client.InNamespace(job.Namespace))).To(gomega.Succeed())
		g.Expect(events.Items).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Regarding.Name", job.Name), gomega.HaveField("Reason", "Fenced"),
			gomega.HaveField("Note", gomega.ContainSubstring("deleted, because somebody other than its hub has resumed it")),
		)))
	})
	s.gone(job)
	s.Runs(job, south, 2)
	s.cleared(job)
}
