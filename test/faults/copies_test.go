// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/links"
	"github.com/trainyard/trainyard/test/yard"
)

// copyOf reads a job's copy.
func copyOf(g gomega.Gomega, worker string, job client.Object) *trainer.TrainJob {
	c := &trainer.TrainJob{}
	g.Expect(w.Workers[worker].Get(context.Background(), client.ObjectKeyFromObject(job), c)).To(gomega.Succeed())
	return c
}

// patch changes an object with a merge patch of the difference.
func patch[T client.Object](s *scenario, c client.Client, object T, change func(T)) {
	s.Helper()
	before := object.DeepCopyObject().(T)
	change(object)
	check.Must(s, c.Patch(context.Background(), object, client.MergeFrom(before)))
}

// historyHas waits until an attempt of a job has ended with an outcome.
func (s *scenario) historyHas(job *trainer.TrainJob, attempt int32, worker string, outcome v1alpha1.Outcome) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.DispatchOf(g, job).Status.History).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Attempt", attempt), gomega.HaveField("Outcome", outcome), gomega.HaveField("Cluster", v1alpha1.ClusterName(worker)),
		)))
	})
}

// Somebody deletes the copy on the worker while it runs. The job gets a new attempt when no pod is alive.
func TestFaultCopyDeleted(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker))
	s.Runs(job, worker, 1)
	check.Must(t, w.Workers[worker].Delete(t.Context(), copyOf(gomega.NewWithT(t), worker, job)))
	s.historyHas(job, 1, worker, v1alpha1.OutcomeCopyDeleted)
	s.Runs(job, worker, 2)
}

// Somebody deletes the copy in the background, and its pods take long to end. The next attempt waits for them.
func TestFaultCopyDeletedBeforeItsPods(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker, south), terminating("4s"))
	s.Runs(job, worker, 1)
	check.Must(t, w.Workers[worker].Delete(t.Context(), copyOf(gomega.NewWithT(t), worker, job)))
	s.historyHas(job, 1, worker, v1alpha1.OutcomeCopyDeleted)
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.DispatchOf(g, job).Spec.Attempt).To(gomega.BeEquivalentTo(2)) })
	if intervals := w.Recorder.Intervals(job.UID); intervals[0].To.Sub(intervals[0].From) < 4*time.Second {
		t.Errorf("the pods were to go on for 4s: %v", intervals)
	}
}

// Somebody removes our labels from a running copy. The caches no longer show it. No second copy is started.
func TestFaultCopyUnlabelled(t *testing.T) {
	s, worker := with(t)
	job := s.submit("20s", on(worker, south))
	s.Runs(job, worker, 1)
	labels := map[string]string{}
	patch(s, w.Workers[worker], copyOf(gomega.NewWithT(t), worker, job), func(c *trainer.TrainJob) {
		for key, value := range c.Labels {
			labels[key] = value
		}
		delete(c.Labels, v1alpha1.LabelHub)
		delete(c.Labels, v1alpha1.LabelOriginUID)
	})
	s.ends(s.submit("6s", on(south))) // A copy counts as gone after looks that found nothing for three seconds.
	s.Attempt(job, 1)
	patch(s, w.Workers[worker], copyOf(gomega.NewWithT(t), worker, job), func(c *trainer.TrainJob) { c.Labels = labels })
	s.ends(job)
	s.Attempt(job, 1)
}

// Somebody suspends the copy on the worker. The manager resumes it, because the hub's job is not suspended.
func TestFaultCopySuspended(t *testing.T) {
	s, worker := with(t)
	job := s.submit("3s", on(worker))
	s.Runs(job, worker, 1)
	patch(s, w.Workers[worker], copyOf(gomega.NewWithT(t), worker, job), func(c *trainer.TrainJob) { c.Spec.Suspend = ptr.To(true) })
	s.ends(job)
	s.Attempt(job, 1)
}

// The copy is deleted, and a foreign job gets its name before the next attempt. The foreign job is left alone, and the
// job runs on another worker.
func TestFaultForeignJobOfTheName(t *testing.T) {
	s, worker := with(t)
	if err := yard.InstallRuntimes(t.Context(), w.Yard.Workers[worker]); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	job := s.submit(clusters.RunForever, on(worker, south))
	s.Runs(job, worker, 1)
	foreign := yard.Job{Name: job.Name, ManagedBy: v1alpha1.ManagedByBuiltIn, RunFor: clusters.RunForever}.TrainJob()
	var before *trainer.TrainJob
	check.Must(t, w.Workers[worker].Delete(t.Context(), copyOf(gomega.NewWithT(t), worker, job), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	t.Cleanup(func() { _ = w.Workers[worker].Delete(context.Background(), foreign) })
	s.Eventually(func(g gomega.Gomega) { // Whoever is first: our next attempt may be there for a moment.
		before = foreign.DeepCopy()
		err := w.Workers[worker].Create(t.Context(), before)
		if err != nil {
			_ = w.Workers[worker].DeleteAllOf(t.Context(), &trainer.TrainJob{}, client.InNamespace(job.Namespace),
				client.MatchingLabels{v1alpha1.LabelOriginUID: string(job.UID)})
		}
		g.Expect(err).NotTo(gomega.HaveOccurred())
	})
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.DispatchOf(g, job).Spec.Cluster).To(gomega.BeEquivalentTo(south)) })
	s.Eventually(func(g gomega.Gomega) { g.Expect(w.PodsOf(g, south, job)).NotTo(gomega.BeEmpty()) })
	after := copyOf(gomega.NewWithT(t), worker, job)
	if diff := cmp.Diff(before.ObjectMeta.Labels, after.Labels); diff != "" || before.UID != after.UID || after.DeletionTimestamp != nil {
		t.Errorf("the foreign job was touched: %+v", after)
	}
}

// The namespace is deleted on the worker, with the copy in it.
func TestFaultNamespaceDeleted(t *testing.T) {
	s, worker := with(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "doomed-" + worker}}
	check.Must(t, w.Hub.Create(t.Context(), namespace))
	t.Cleanup(func() { _ = w.Hub.Delete(context.Background(), namespace) })
	job := s.submit(clusters.RunForever, on(worker, south), in(namespace.Name))
	s.Runs(job, worker, 1)
	there := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	check.Must(t, w.Workers[worker].Delete(t.Context(), there))
	s.historyHas(job, 1, worker, v1alpha1.OutcomeCopyDeleted)
	s.Eventually(func(g gomega.Gomega) { // On either worker: the namespace may be there again.
		d := w.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).NotTo(gomega.BeEmpty())
		g.Expect(w.PodsOf(g, string(d.Spec.Cluster), job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// Somebody deletes the Dispatch: the attempt ends, and the next attempt has the next number.
func TestFaultDispatchDeleted(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker, south))
	s.Runs(job, worker, 1)
	first := w.DispatchOf(gomega.NewWithT(t), job)
	check.Must(t, w.Hub.Delete(t.Context(), first))
	s.Eventually(func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.UID).NotTo(gomega.Equal(first.UID))
		g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(2))
		g.Expect(w.PodsOf(g, string(d.Spec.Cluster), job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// awayWithAJob begins a scenario with a job that runs on a worker, and makes the worker refuse connections.
func awayWithAJob(t *testing.T) (s *scenario, worker string, job *trainer.TrainJob) {
	t.Helper()
	s, worker = patient(t)
	job = s.submit(clusters.RunForever, on(worker))
	s.Runs(job, worker, 1)
	s.fault(worker, func(l *links.Link) error { l.Refuse(); return nil })
	s.workerSays(worker, v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable)
	return s, worker, job
}

// A job is deleted while its worker is away. The TrainJob is gone at once. Its Dispatch stays, and says for which
// worker it waits. When the worker returns, the copy is deleted, and then the Dispatch.
func TestFaultDeletedWhileAway(t *testing.T) {
	s, worker, job := awayWithAJob(t)
	check.Must(t, w.Hub.Delete(t.Context(), job.DeepCopy()))
	s.gone(w.Hub, job, &trainer.TrainJob{})
	s.dispatchSays(job, v1alpha1.DispatchWorkerLost, v1alpha1.ReasonDeletionPending, worker)
	if d := w.DispatchOf(gomega.NewWithT(t), job); d.DeletionTimestamp == nil && len(d.Finalizers) == 0 {
		t.Errorf("the Dispatch does not wait for its worker: %+v", d)
	}
	s.heal(worker)
	s.gone(w.Workers[worker], job, &trainer.TrainJob{})
	s.gone(w.Hub, job, &v1alpha1.Dispatch{})
}

// The same in the foreground: the TrainJob stays visible until its copy is gone.
func TestFaultDeletedInForegroundWhileAway(t *testing.T) {
	s, worker, job := awayWithAJob(t)
	check.Must(t, w.Hub.Delete(t.Context(), job.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.Eventually(func(g gomega.Gomega) {
		g.Expect(w.DispatchOf(g, job).DeletionTimestamp).NotTo(gomega.BeNil())
	})
	check.Equal(t, nil, w.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), &trainer.TrainJob{}),
		"the TrainJob is not visible while its copy exists")
	s.heal(worker)
	s.gone(w.Hub, job, &trainer.TrainJob{})
	s.gone(w.Workers[worker], job, &trainer.TrainJob{})
}

// gone waits until there is no object of the job's name.
func (s *scenario) gone(c client.Reader, job client.Object, object client.Object) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		err := c.Get(context.Background(), client.ObjectKeyFromObject(job), object)
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(err).To(gomega.HaveOccurred(), "%T is still there", object)
	})
}

// restoreHub puts the hub back to a backup, as an admin does: the manager is stopped, and starts when the API server is
// back.
func (s *scenario) restoreHub(backup string) {
	s.Helper()
	check.Must(s, w.Managers.Away())
	check.Must(s, w.Yard.Hub.Restore(s.Context(), backup))
	check.Must(s, w.Recorder.Restored(s.Context()))
	check.Must(s, w.Managers.Back())
}

// The hub is restored from a backup that is older than some jobs, and older than a move. No running job is stopped or
// started twice. An admin decides about copies that the hub does not know. A job that has moved since the backup is
// found on its new worker.
func TestFaultHubRestored(t *testing.T) {
	s := alone(t)
	moved := s.submit(clusters.RunForever, on(west, east))
	stays := s.submit(clusters.RunForever, on(west))
	ended := s.submit("15s", on(west))
	s.Runs(moved, west, 1)
	s.settles(stays)
	backup := filepath.Join(t.TempDir(), "backup")
	check.Must(t, w.Yard.Hub.BackUp(backup))
	s.editSpec(west, func(spec *v1alpha1.WorkerClusterSpec) { spec.Unschedulable = true })
	check.Must(t, w.Workers[west].Delete(t.Context(), copyOf(gomega.NewWithT(t), west, moved)))
	s.Runs(moved, east, 2)
	unknown := map[v1alpha1.CopyDecision]*trainer.TrainJob{}
	copies := map[v1alpha1.CopyDecision]*trainer.TrainJob{}
	for _, decision := range []v1alpha1.CopyDecision{v1alpha1.DecisionAdopt, v1alpha1.DecisionRelease, v1alpha1.DecisionDelete} {
		unknown[decision] = s.submit(clusters.RunForever, on(east))
	}
	for decision, job := range unknown {
		s.Runs(job, east, 1)
		copies[decision] = copyOf(gomega.NewWithT(t), east, job)
	}
	s.ends(ended)

	s.restoreHub(backup)
	s.workerSays(east, v1alpha1.WorkerClusterUnknownCopies, v1alpha1.ReasonQuarantined)
	s.Eventually(func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(w.Hub.Get(t.Context(), client.ObjectKey{Name: east}, object)).To(gomega.Succeed())
		g.Expect(object.Status.UnknownCopies).To(gomega.HaveLen(len(unknown)))
	})
	// The move is known again: the copy of the second attempt goes on, and the hub says so.
	s.Runs(moved, east, 2)
	s.Runs(stays, west, 1)
	s.ends(ended)
	for _, job := range unknown {
		check.Equal(t, nil, copyOf(gomega.NewWithT(t), east, job).DeletionTimestamp,
			"the hub deletes what it does not know: %s", job.Name)
	}

	s.decide(east, copies)
	adopted := s.submit(clusters.RunForever, on(east), func(job *trainer.TrainJob) { job.Name = unknown[v1alpha1.DecisionAdopt].Name })
	s.Runs(adopted, east, 1)
	check.Equal(t, copies[v1alpha1.DecisionAdopt].UID, copyOf(gomega.NewWithT(t), east, adopted).UID,
		"the adopted copy was started again")
	s.gone(w.Workers[east], unknown[v1alpha1.DecisionDelete], &trainer.TrainJob{})
	s.Eventually(func(g gomega.Gomega) {
		released := copyOf(g, east, unknown[v1alpha1.DecisionRelease])
		g.Expect(released.Labels).NotTo(gomega.HaveKey(v1alpha1.LabelHub))
		g.Expect(w.PodsOf(g, east, released)).NotTo(gomega.BeEmpty(), "it runs on")
	})
	// The TrainJob belongs to the worker now, and the test plays the worker's admin.
	check.Must(t, w.Workers[east].Delete(t.Context(), copies[v1alpha1.DecisionRelease]))
	for _, job := range []*trainer.TrainJob{moved, stays} {
		if intervals := w.Recorder.Intervals(job.UID); !intervals[len(intervals)-1].To.IsZero() {
			t.Errorf("%s was stopped by the restore: %v", job.Name, intervals)
		}
	}
}

// decide says for each unknown copy what an admin wants.
func (s *scenario) decide(worker string, copies map[v1alpha1.CopyDecision]*trainer.TrainJob) {
	s.Helper()
	err := w.EditWorker(context.Background(), worker, func(object *v1alpha1.WorkerCluster) {
		for decision, copied := range copies {
			metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationDecisionPrefix+string(copied.UID), string(decision))
		}
	})
	if err != nil {
		s.Error(err)
	}
}
