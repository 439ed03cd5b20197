// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"context"
	"maps"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/kueue"
)

// kill ends Kueue with SIGKILL. Its webhooks stay, and refuse what they are asked. It is back when the test ends.
func (s *scenario) kill() {
	s.Helper()
	s.Must(behind.Process.Kill())
	s.Cleanup(func() {
		select {
		case <-behind.Process.Done():
			s.restart()
		default:
		}
	})
}

// restart starts Kueue.
func (s *scenario) restart() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.Must(behind.Start(ctx))
}

// Kueue is killed and started again. A running copy goes on, and a copy in the queue keeps its place and is admitted.
func TestFaultKueueKilled(t *testing.T) {
	s := begin(t)
	running := s.submit()
	s.Runs(running, west, 1)
	s.hold()
	waiting := s.submit()
	s.isQueued(waiting)
	s.kill()
	s.restart()
	s.isQueued(waiting)
	s.stopPolicy("None")
	s.Runs(waiting, west, 1)
	s.Runs(running, west, 1)
	if intervals := w.Recorder.Intervals(running.UID); len(intervals) != 1 || !intervals[0].To.IsZero() {
		t.Errorf("the job was stopped: %v", intervals)
	}
}

// While Kueue does not run, the worker takes no copies: jobs run elsewhere.
func TestFaultKueueAway(t *testing.T) {
	s := begin(t)
	s.kill()
	job := s.submit()
	s.Runs(job, south, 2)
	s.wasRefused(job, "kueue")
}

// wasRefused checks that only one attempt has ended, because west has refused it in these words.
func (s *scenario) wasRefused(job *trainer.TrainJob, words string) {
	s.Helper()
	g := gomega.NewWithT(s)
	g.Expect(w.DispatchOf(g, job).Status.History).To(gomega.ConsistOf(gomega.And(
		gomega.HaveField("Cluster", v1alpha1.ClusterName(west)), gomega.HaveField("Outcome", v1alpha1.OutcomeRejected),
		gomega.HaveField("Message", gomega.ContainSubstring(words)),
	)))
}

// The API server of the worker dies while a copy is in the queue. The copy is admitted in the same attempt.
func TestFaultQueuedWhileAPIServerDies(t *testing.T) {
	s := begin(t)
	s.hold()
	job := s.submit()
	s.isQueued(job)
	cluster := w.Yard.Workers[west]
	s.Must(cluster.KillAPIServer())
	s.Eventually(func(g gomega.Gomega) {
		worker := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(t.Context(), client.ObjectKey{Name: west}, worker)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionFalse(worker.Status.Conditions, v1alpha1.WorkerClusterReady)).To(gomega.BeTrue())
	})
	s.Must(cluster.StartAPIServer(t.Context()))
	s.heal()
	s.alive()
	s.isQueued(job)
	s.stopPolicy("None")
	s.Runs(job, west, 1)
}

// alive starts Kueue again if it has ended, as it may when its API server is away. A kubelet would.
func (s *scenario) alive() {
	s.Helper()
	select {
	case <-behind.Process.Done():
		s.restart()
	default:
	}
}

// The queue of the worker is drained: Kueue stops the copy. The hub leaves that to Kueue, which starts the copy again.
func TestFaultQueueDrained(t *testing.T) {
	s := begin(t)
	job := s.submit()
	s.Runs(job, west, 1)
	s.hold()
	s.stopPolicy("HoldAndDrain")
	s.isQueued(job)
	before := copyOf(gomega.NewWithT(s), job)
	s.stopPolicy("None")
	s.Runs(job, west, 1)
	if after := copyOf(gomega.NewWithT(s), job); after.UID != before.UID || after.Generation > before.Generation+2 {
		t.Errorf("the copy was %s in generation %d, and is %s in generation %d",
			before.UID, before.Generation, after.UID, after.Generation)
	}
}

// The hub suspends a job whose copy Kueue has admitted: the copy is deleted, and nothing starts it again until the job
// is resumed.
func TestFaultSuspendedByTheHub(t *testing.T) {
	s := begin(t)
	job := s.submit()
	s.Runs(job, west, 1)
	s.admitted(job)
	s.suspend(job, true)
	s.Eventually(func(g gomega.Gomega) {
		placed := meta.FindStatusCondition(w.DispatchOf(g, job).Status.Conditions, v1alpha1.DispatchPlaced)
		g.Expect(placed).To(gomega.HaveValue(gomega.HaveField("Reason", v1alpha1.ReasonSuspended)))
	})
	s.gone(job)
	// A later job runs, so Kueue and the manager have seen everything about the first job.
	s.Runs(s.submit(), west, 1)
	if intervals := w.Recorder.Intervals(job.UID); len(intervals) != 1 || intervals[0].To.IsZero() {
		t.Errorf("the job was not stopped once: %v", intervals)
	}
	s.suspend(job, false)
	s.Runs(job, west, 2)
}

// suspend suspends or resumes a job on the hub.
func (s *scenario) suspend(job *trainer.TrainJob, suspend bool) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.Hub.Get(context.Background(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
		job.Spec.Suspend = &suspend
		g.Expect(w.Hub.Update(context.Background(), job)).To(gomega.Succeed())
	})
}

// configure starts Kueue with more configuration, until the test ends.
func (s *scenario) configure(more map[string]any) {
	s.Helper()
	again := func(config map[string]any) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		s.Must(behind.Process.Stop())
		behind.Config = config
		s.Must(behind.Install(ctx))
		s.Must(behind.Start(ctx))
	}
	changed := integrations()
	maps.Copy(changed, more)
	again(changed)
	s.Cleanup(func() { again(integrations()) })
}

// The worker's Kueue manages jobs without a queue, so it suspends a copy without a queue, and never admits it. The hub
// does not resume the copy: it treats this as a refusal, and the next worker runs the job.
func TestManagedWithoutQueueName(t *testing.T) {
	s := begin(t)
	s.configure(map[string]any{
		"manageJobsWithoutQueueName": true,
		"managedJobsNamespaceSelector": map[string]any{
			"matchLabels": map[string]any{"kubernetes.io/metadata.name": metav1.NamespaceDefault},
		},
	})
	job := s.submitTo("")
	s.Runs(job, south, 2)
	s.wasRefused(job, "LocalQueue")
}

// A LocalQueue of the name default takes copies that name no queue.
func TestDefaultQueue(t *testing.T) {
	s := begin(t)
	local := kueue.Object("LocalQueue", metav1.NamespaceDefault, "default")
	local.Object["spec"] = map[string]any{"clusterQueue": queue}
	s.Must(behind.Apply(t.Context(), local))
	t.Cleanup(func() { s.Must(w.Workers[west].Delete(context.Background(), local)) })
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.Workers[west].Get(t.Context(), client.ObjectKeyFromObject(local), local)).To(gomega.Succeed())
		g.Expect(kueue.IsTrue(local, "Active")).To(gomega.BeTrue())
	})
	job := s.submitTo("")
	s.Runs(job, west, 1)
	s.admitted(job)
	s.stoppedInTime(job, s.cut())
	s.triesToStart(job)
	s.heal()
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.PodsOf(g, west, job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
	s.Attempt(job, 1)
}

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
