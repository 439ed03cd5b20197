// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// A job on the hub gets a Dispatch, and a copy, a JobSet and pods on only one worker. The hub shows the copy's status.
func TestJobCompletesOnOneWorker(t *testing.T) {
	job := submit(t, yard.Job{Name: "completes", Nodes: 2, GPUs: 8, RunFor: "3s"})
	key := client.ObjectKeyFromObject(job)
	if worker := placedOn(t, job); worker != large {
		t.Fatalf("placed on %q, but only %q has 2 nodes with 8 GPUs", worker, large)
	}

	copied := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	y.Eventually(t, func(g gomega.Gomega) {
		current(t.Context(), g, y.Workers[large], copied)
		g.Expect(copied.Spec.ManagedBy).To(gomega.HaveValue(gomega.Equal(v1alpha1.ManagedByBuiltIn)))
		g.Expect(copied.Labels).To(gomega.HaveKeyWithValue(v1alpha1.LabelOriginUID, string(job.UID)))
	})
	var pods corev1.PodList
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Workers[large].Get(t.Context(), key, &jobsetv1alpha2.JobSet{})).To(gomega.Succeed())
		g.Expect(y.Workers[large].List(t.Context(), &pods, client.InNamespace(key.Namespace),
			client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: key.Name})).To(gomega.Succeed())
		g.Expect(pods.Items).To(gomega.HaveLen(2))
	})
	y.Eventually(t, func(g gomega.Gomega) {
		current(t.Context(), g, y.Hub, job)
		g.Expect(job.Status.JobsStatus).To(gomega.ContainElement(gomega.HaveField("Active", gomega.HaveValue(gomega.BeEquivalentTo(1)))),
			"jobsStatus on the way")
	})
	expectNone(t, y.Workers[small], &trainer.TrainJob{}, key)
	for name, c := range map[string]client.Reader{"hub": y.Hub, small: y.Workers[small]} {
		if err := c.List(t.Context(), &pods, client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: key.Name}); err != nil || len(pods.Items) > 0 {
			t.Errorf("pods on %s: %d, %v; want none", name, len(pods.Items), err)
		}
		expectNone(t, c, &jobsetv1alpha2.JobSet{}, key)
	}

	done := ends(t, job, trainer.TrainJobComplete)
	current(t.Context(), gomega.NewWithT(t), y.Workers[large], copied)
	check.Diff(t, copied.Status, done.Status, "status on the hub and of the copy (-copy +hub)")
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseFinished))
		g.Expect(d.Status.Reason).To(gomega.Equal(v1alpha1.ReasonComplete))
		g.Expect(d.Status.CopyUID).To(gomega.Equal(copied.UID))
		for _, kind := range []string{v1alpha1.DispatchPlaced, v1alpha1.DispatchMirrored, v1alpha1.DispatchFinished} {
			g.Expect(meta.IsStatusConditionTrue(d.Status.Conditions, kind)).To(gomega.BeTrue(), kind)
		}
		g.Expect(d.Status.History).To(gomega.HaveLen(1))
	})
	if events := expectEvents(t, job, "Placed"); len(events) != 1 {
		t.Errorf("got %d Events of a job that just ran, want one: %v", len(events), events)
	}
}

// The hub shows the worker's reason and message for a job that fails.
func TestJobFailsWithTheWorkersWords(t *testing.T) {
	job := submit(t, yard.Job{Name: "fails", GPUs: 1, RunFor: "2s", Fail: "checkpoint is corrupt"})
	failed := ends(t, job, trainer.TrainJobFailed)
	var copied trainer.TrainJob
	check.Must(t, y.Workers[placedOn(t, job)].Get(t.Context(), client.ObjectKeyFromObject(job), &copied))
	want := meta.FindStatusCondition(copied.Status.Conditions, trainer.TrainJobFailed)
	check.Diff(t, want, meta.FindStatusCondition(failed.Status.Conditions, trainer.TrainJobFailed),
		"Failed condition (-worker +hub)")
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(d.Status.Reason).To(gomega.Equal(v1alpha1.ReasonFailed))
	})
	expectEvents(t, job, "Placed", "Failed")
}

// The hub's own agent leaves a dispatched job alone, and runs a job with the built-in value. Everybody leaves a job
// with another value alone.
func TestWhoRunsWhat(t *testing.T) {
	crd, err := y.Script(t.Context(), "trainjob-crd.sh")
	check.Must(t, err)
	if err := y.Yard.Hub.Apply(t.Context(), string(crd)); err != nil {
		t.Fatalf("apply the CRD that admits any manager: %v", err)
	}
	foreign := yard.Job{Name: "foreign", ManagedBy: "example.com/somebody", RunFor: "1s"}.TrainJob()
	y.Eventually(t, func(g gomega.Gomega) { // The API server takes a moment until it uses the new CRD.
		g.Expect(y.Hub.Create(t.Context(), foreign)).To(gomega.Succeed())
	})
	t.Cleanup(func() { _ = y.Hub.Delete(context.Background(), foreign) })
	local := submit(t, yard.Job{Name: "local", ManagedBy: v1alpha1.ManagedByBuiltIn, RunFor: "1s"})
	dispatched := submit(t, yard.Job{Name: "dispatched", RunFor: "1s"})

	ends(t, local, trainer.TrainJobComplete)
	ends(t, dispatched, trainer.TrainJobComplete)

	// Both jobs above came later than the foreign job and went through the same queues. If anybody had taken the foreign
	// job, that would be visible now.
	for name, c := range map[string]client.Reader{"hub": y.Hub, small: y.Workers[small], large: y.Workers[large]} {
		expectNone(t, c, &jobsetv1alpha2.JobSet{}, client.ObjectKeyFromObject(foreign))
		if name != "hub" {
			expectNone(t, c, &trainer.TrainJob{}, client.ObjectKeyFromObject(foreign))
			expectNone(t, c, &trainer.TrainJob{}, client.ObjectKeyFromObject(local))
		}
	}
	expectNone(t, y.Hub, &v1alpha1.Dispatch{}, client.ObjectKeyFromObject(foreign))
	expectNone(t, y.Hub, &v1alpha1.Dispatch{}, client.ObjectKeyFromObject(local))
	expectNone(t, y.Hub, &jobsetv1alpha2.JobSet{}, client.ObjectKeyFromObject(dispatched))
	current(t.Context(), gomega.NewWithT(t), y.Hub, foreign)
	check.Diff(t, trainer.TrainJobStatus{}, foreign.Status, "status of the job that nobody owns")
}

// A full run writes nothing of the hub TrainJob but its status.
func TestHubTrainJobIsNotWritten(t *testing.T) {
	job := submit(t, yard.Job{Name: "untouched", GPUs: 1, RunFor: "2s"})
	done := ends(t, job, trainer.TrainJobComplete)
	check.Diff(t, comparable(job), comparable(done), "the hub TrainJob without its status, before and after")
}

// comparable returns a job without its resourceVersion, its status and the managed fields of the status.
func comparable(job *trainer.TrainJob) *trainer.TrainJob {
	rest := job.DeepCopy()
	rest.ResourceVersion = ""
	rest.Status = trainer.TrainJobStatus{}
	rest.ManagedFields = slices.DeleteFunc(rest.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "status"
	})
	return rest
}

// If a placed job is suspended, its attempt ends, and copy and pods are deleted. If it is resumed, it is placed again.
func TestSuspendAndResume(t *testing.T) {
	job := submit(t, yard.Job{Name: "pauses", GPUs: 1, RunFor: "forever"})
	placedOn(t, job)
	pods := func(g gomega.Gomega) (pods []corev1.Pod) {
		for _, worker := range y.Workers {
			var list corev1.PodList
			g.Expect(worker.List(t.Context(), &list, client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.Name})).To(gomega.Succeed())
			pods = append(pods, list.Items...)
		}
		return pods
	}
	y.Eventually(t, func(g gomega.Gomega) { g.Expect(pods(g)).To(gomega.HaveLen(1)) })
	edit(t.Context(), t, y.Hub, job, func(job *trainer.TrainJob) { job.Spec.Suspend = ptr.To(true) })
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(pods(g)).To(gomega.BeEmpty())
		current(t.Context(), g, y.Hub, job)
		g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobSuspended)).To(gomega.BeTrue())
	})
	expectEvents(t, job, string(v1alpha1.OutcomeSuspended))
	edit(t.Context(), t, y.Hub, job, func(job *trainer.TrainJob) { job.Spec.Suspend = ptr.To(false) })
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(pods(g)).To(gomega.HaveLen(1))
		current(t.Context(), g, y.Hub, job)
		g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobSuspended)).To(gomega.BeFalse())
		d := &v1alpha1.Dispatch{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(2))
	})
}

// expectEvents waits for Events of the given reasons on the hub TrainJob.
func expectEvents(t *testing.T, job client.Object, reasons ...string) []eventsv1.Event {
	t.Helper()
	var found []eventsv1.Event
	y.Eventually(t, func(g gomega.Gomega) {
		var list eventsv1.EventList
		g.Expect(y.Hub.List(t.Context(), &list, client.InNamespace(job.GetNamespace()))).To(gomega.Succeed())
		found = slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != job.GetUID() })
		var got []string
		for _, e := range found {
			got = append(got, e.Reason)
		}
		g.Expect(got).To(gomega.ContainElements(reasons), strings.Join(got, " "))
	})
	return found
}
