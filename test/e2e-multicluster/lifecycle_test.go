// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
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

// If a worker refuses the copy, the Dispatch quotes the worker, and the job tries the next worker.
func TestRejection(t *testing.T) {
	const namespace = "no-room"
	for _, c := range []client.Client{y.Hub, y.Workers[small], y.Workers[large]} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-trainjobs"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/trainjobs.trainer.kubeflow.org": resource.MustParse("0")}},
	}
	check.Must(t, y.Workers[small].Create(t.Context(), quota))
	y.Eventually(t, func(g gomega.Gomega) { // The API server refuses according to the status of the quota.
		g.Expect(current(t.Context(), g, y.Workers[small], quota).Status.Hard).To(gomega.HaveLen(1))
	})
	y.Cordon(t, large, true)
	job := submit(t, yard.Job{Namespace: namespace, Name: "refused", GPUs: 1, RunFor: "1s"})
	d := waitsFor(t, job, v1alpha1.ReasonRejected)
	if len(d.Status.History) != 1 {
		t.Fatalf("history %+v, want one refusal", d.Status.History)
	}
	gomega.NewWithT(t).Expect(d.Status.History[0].Message).To(gomega.ContainSubstring("exceeded quota: no-trainjobs"), "the worker's words")
	expectEvents(t, job, "Rejected")
	y.Cordon(t, large, false)
	ends(t, job, trainer.TrainJobComplete)
}

// The manager creates and marks missing namespaces and runtimes on a worker, and updates runtimes of the hub.
func TestPropagation(t *testing.T) {
	const namespace = "only-on-the-hub"
	check.Must(t, y.Hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	source := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: yard.RuntimeName}}
	current(t.Context(), gomega.NewWithT(t), y.Hub, source)
	own := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own", Labels: source.Labels}, Spec: source.Spec}
	check.Must(t, y.Hub.Create(t.Context(), own))
	run := func(name string) string {
		job := yard.Job{Namespace: namespace, Name: name, GPUs: 8}.TrainJob() // Only on large.
		job.Spec.RuntimeRef = trainer.RuntimeRef{Kind: ptr.To(trainer.TrainingRuntimeKind), Name: own.Name}
		check.Must(t, y.Hub.Create(t.Context(), job))
		ends(t, job, trainer.TrainJobComplete)
		return placedOn(t, job)
	}
	worker := y.Workers[run("first")]

	hubID := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	current(t.Context(), gomega.NewWithT(t), y.Hub, hubID)
	created := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	current(t.Context(), gomega.NewWithT(t), worker, created)
	there := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: own.Name}}
	current(t.Context(), gomega.NewWithT(t), worker, there)
	for _, object := range []client.Object{created, there} {
		check.Equal(t, string(hubID.UID), object.GetLabels()[v1alpha1.LabelPropagatedBy],
			"%T on the worker is labelled: want the hub's ID %q", object, hubID.UID)
	}
	check.Diff(t, own.Spec, there.Spec, "runtime on the worker")

	edit(t.Context(), t, y.Hub, own, func(own *trainer.TrainingRuntime) { own.Spec.MLPolicy.NumNodes = ptr.To[int32](2) })
	// The next job brings the runtime as the manager knows it then. A job that comes at once may be faster than the change
	// in the manager's cache.
	var diff string
	for i := range 5 {
		run(fmt.Sprintf("next-%d", i))
		current(t.Context(), gomega.NewWithT(t), worker, there)
		if diff = cmp.Diff(own.Spec, there.Spec); diff == "" {
			return
		}
	}
	t.Errorf("runtime on the worker after it changed on the hub (-hub +worker):\n%s", diff)
}

// Deleting the hub TrainJob removes Dispatch, copy, JobSet and pods, even if the garbage collector is told to leave
// dependents (--cascade=orphan). A new TrainJob of the same name runs at once.
func TestDeletion(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground,
		"foreground": metav1.DeletePropagationForeground,
		"orphan":     metav1.DeletePropagationOrphan,
	} {
		t.Run(name, func(t *testing.T) {
			wanted := yard.Job{Name: "deleted-" + name, GPUs: 1, RunFor: "forever"}
			job := submit(t, wanted)
			worker := placedOn(t, job)
			y.Eventually(t, func(g gomega.Gomega) { g.Expect(y.PodsOf(g, worker, job)).To(gomega.HaveLen(1)) })

			check.Must(t, y.Hub.Delete(t.Context(), job, client.PropagationPolicy(policy)))
			next := recreate(t, wanted)
			y.Eventually(t, func(g gomega.Gomega) {
				d := y.DispatchOf(g, next)
				g.Expect(d.Spec.TrainJob.UID).To(gomega.Equal(next.UID))
				copied := &trainer.TrainJob{}
				g.Expect(y.Workers[string(d.Spec.Cluster)].Get(t.Context(), client.ObjectKeyFromObject(next), copied)).To(gomega.Succeed())
				g.Expect(copied.Labels[v1alpha1.LabelOriginUID]).To(gomega.Equal(string(next.UID)))
			})

			check.Must(t, y.Hub.Delete(t.Context(), next, client.PropagationPolicy(policy)))
			y.Eventually(t, func(g gomega.Gomega) {
				key := client.ObjectKeyFromObject(next)
				expectGone(t, g, y.Hub, key, &trainer.TrainJob{}, &v1alpha1.Dispatch{})
				for worker, c := range y.Workers {
					expectGone(t, g, c, key, &trainer.TrainJob{}, &jobsetv1alpha2.JobSet{})
					g.Expect(y.PodsOf(g, worker, next)).To(gomega.BeEmpty())
				}
			})
		})
	}
}

// The copy is deleted first and the Dispatch last: while there is a pod, there is a record of it.
func TestDispatchOutlivesItsPods(t *testing.T) {
	job := submit(t, yard.Job{Name: "slow-to-end", GPUs: 1, RunFor: "forever"})
	name := placedOn(t, job)
	worker := y.Workers[name]
	y.Eventually(t, func(g gomega.Gomega) { g.Expect(y.PodsOf(g, name, job)).To(gomega.HaveLen(1)) })

	// A finalizer of our own keeps the pod, as a node that is slow to stop it would.
	const hold = "e2e.trainyard.dev/hold"
	pod := &y.PodsOf(gomega.NewWithT(t), name, job)[0]
	edit(t.Context(), t, worker, pod, func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, hold) })
	check.Must(t, y.Hub.Delete(t.Context(), job))
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(current(t.Context(), g, worker, pod).DeletionTimestamp).NotTo(gomega.BeNil())
	})
	// Everything that could end has been told to. What is left waits for the pod.
	copied := &trainer.TrainJob{}
	check.Equal(t, nil, worker.Get(t.Context(), client.ObjectKeyFromObject(job), copied),
		"the copy is gone before its pod")
	if d := y.DispatchOf(gomega.NewWithT(t), job); string(d.Spec.Cluster) != name {
		t.Errorf("the Dispatch says %q while the pod is on %q", d.Spec.Cluster, name)
	}
	edit(t.Context(), t, worker, pod, func(pod *corev1.Pod) { pod.Finalizers = nil })
	y.Eventually(t, func(g gomega.Gomega) {
		expectGone(t, g, worker, client.ObjectKeyFromObject(job), copied)
		expectGone(t, g, y.Hub, client.ObjectKeyFromObject(job), &v1alpha1.Dispatch{})
	})
}

// recreate creates a job as soon as its name is free.
func recreate(t *testing.T, wanted yard.Job) *trainer.TrainJob {
	t.Helper()
	var job *trainer.TrainJob
	y.Eventually(t, func(g gomega.Gomega) {
		job = wanted.TrainJob()
		g.Expect(y.Hub.Create(t.Context(), job)).To(gomega.Succeed())
	})
	return job
}

func expectGone(t *testing.T, g gomega.Gomega, c client.Reader, key client.ObjectKey, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		err := c.Get(t.Context(), key, object)
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "%T %s: %v", object, key, err)
	}
}
