// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/webhooks/validation"
)

// heldFinalizer keeps a TrainJob until a test has checked its end.
const heldFinalizer = "trainyard.dev/test"

// forever makes the pods of nodes run until they are deleted.
func forever(j *trainer.TrainJob) {
	annotated(j, "trainyard.dev/run-for", "forever")
}

// slowly makes the pods of nodes terminate until a test says that they have failed.
func slowly(j *trainer.TrainJob) {
	annotated(j, "trainyard.dev/terminate-for", "1h")
}

func annotated(j *trainer.TrainJob, key, value string) {
	p := patched("test.io/"+key[len("trainyard.dev/"):], "node", trainer.PodSpecPatch{})
	p.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Metadata = &metav1.ObjectMeta{
		Annotations: map[string]string{key: value},
	}
	j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, p)
}

func selecting(value string) trainer.RuntimePatch {
	return patched("acme.io/queue", "node", trainer.PodSpecPatch{NodeSelector: map[string]string{"pool": value}})
}

func preferring(weight int32) trainer.RuntimePatch {
	return patched("acme.io/queue", "node", trainer.PodSpecPatch{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: weight, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
		}}},
	}}})
}

// queued changes a job's patches like a queue that has its own patch.
func queued(p trainer.RuntimePatch, suspend bool) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) {
		j.Spec.Suspend = &suspend
		j.Spec.RuntimePatches = slices.DeleteFunc(j.Spec.RuntimePatches, func(o trainer.RuntimePatch) bool { return o.Manager == p.Manager })
		j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, p)
	}
}

func jobSetSuspended(js *jobsetv1alpha2.JobSet) bool { return ptr.Deref(js.Spec.Suspend, false) }

func (e *environment) pods(t *testing.T, j *trainer.TrainJob) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	err := e.List(t.Context(), &list, client.InNamespace(j.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: j.Name})
	check.Must(t, err)
	return list.Items
}

// running creates a job whose pods run until they are deleted, and waits for two of them.
func (e *environment) running(t *testing.T, namespace string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	j := job(namespace, "j", append(changes, forever)...)
	e.create(t, j)
	eventually(t, "pods to run", func(g gomega.Gomega) {
		pods := e.pods(t, j)
		g.Expect(pods).To(gomega.HaveLen(2))
		for _, pod := range pods {
			g.Expect(pod.Status.Phase).To(gomega.Equal(corev1.PodRunning))
		}
	})
	return j
}

// suspendedAgain suspends a running job and waits until only the suspended JobSet is left.
func (e *environment) suspendedAgain(t *testing.T, j *trainer.TrainJob) {
	t.Helper()
	check.Must(t, update(t, e, j, suspended))
	e.awaitJobSet(t, j, jobSetSuspended)
	eventually(t, "pods to go", func(g gomega.Gomega) { g.Expect(e.pods(t, j)).To(gomega.BeEmpty()) })
}

func TestPatchesChangeOnlyWhileNoPodRuns(t *testing.T) {
	e := env(t)
	j := e.running(t, e.namespace(t), slowly)
	pods := e.pods(t, j)
	alive := func(state string) string {
		return "spec.runtimePatches: Forbidden: may change only while no pod of the TrainJob is running or terminating: " +
			pods[0].Name + " is " + state + " on node " + pods[0].Spec.NodeName + ", " +
			pods[1].Name + " is " + state + " on node " + pods[1].Spec.NodeName
	}
	const suspendFirst = "spec.runtimePatches: Forbidden: may change only if the TrainJob is suspended before or after the request"
	wantFaults(t, update(t, e, j, queued(selecting("a"), false)), suspendFirst, alive("running"))
	wantFaults(t, update(t, e, j, queued(selecting("a"), true)), alive("running"))

	if err := update(t, e, j, suspended); err != nil {
		t.Fatalf("a running job cannot be suspended: %v", err)
	}
	eventually(t, "pods to terminate, which the JobSet does not count", func(g gomega.Gomega) {
		for _, pod := range e.pods(t, j) {
			g.Expect(pod.DeletionTimestamp).NotTo(gomega.BeNil())
		}
		js := e.awaitJobSet(t, j, jobSetSuspended)
		g.Expect(js.Status.ReplicatedJobsStatus).NotTo(gomega.BeEmpty())
		g.Expect(js.Status.ReplicatedJobsStatus[0].Active).To(gomega.BeZero()) // Upstream checks only this.
	})
	wantFaults(t, update(t, e, j, queued(selecting("a"), true)), alive("terminating"))

	for _, pod := range e.pods(t, j) {
		pod.Status.Phase = corev1.PodFailed
		check.Must(t, e.Status().Update(t.Context(), &pod))
	}
	check.Equal(t, nil, update(t, e, j, queued(selecting("a"), true)), "the pods have ended, and the patch is refused")
}

func TestPatchAndResumeInOneRequest(t *testing.T) {
	e := env(t)
	j := job(e.namespace(t), "j", suspended, forever)
	e.create(t, j)
	e.awaitJobSet(t, j, jobSetSuspended)
	check.Must(t, update(t, e, j, queued(selecting("a"), false)))
	js := e.awaitJobSet(t, j, func(js *jobsetv1alpha2.JobSet) bool { return !jobSetSuspended(js) })
	check.Equal(t, "a", js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["pool"],
		"the JobSet was resumed with the node selector")
}

// liveJobSet is an API server that has this JobSet.
type liveJobSet struct {
	client.Reader
	jobSet *jobsetv1alpha2.JobSet
}

// Get returns the JobSet, or reads from the API server.
func (l liveJobSet) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if into, ok := object.(*jobsetv1alpha2.JobSet); ok {
		l.jobSet.DeepCopyInto(into)
		return nil
	}
	return l.Reader.Get(ctx, key, object, opts...)
}

// TestPatchAndResumeBeforeTheJobSetIsSuspended: the controller has not suspended the JobSet yet. If one request patches
// and resumes, the patch would never reach a JobSet that was not suspended.
func TestPatchAndResumeBeforeTheJobSetIsSuspended(t *testing.T) {
	e := env(t)
	j := job(e.namespace(t), "j", suspended, forever)
	e.create(t, j)
	existing := e.awaitJobSet(t, j, jobSetSuspended)
	existing.Spec.Suspend = new(false)

	v := e.validatorOf(t, validation.Options{
		Client: e.manager.GetClient(), Live: liveJobSet{Reader: e.manager.GetAPIReader(), jobSet: existing},
	})
	old := e.get(t, j)
	resumed := old.DeepCopy()
	queued(selecting("a"), false)(resumed)
	_, err := v.ValidateUpdate(t.Context(), old, resumed)
	wantFaults(t, err, "spec.runtimePatches: Forbidden: the JobSet is not suspended yet")
}

func TestPatchAndSuspendInOneRequest(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	// The job is not suspended and has no pods, because there is no room for them.
	e.create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"},
		Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "a"}}, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	e.quota(t, ns, "pods", corev1.ResourceList{"pods": resource.MustParse("1")})
	j := job(ns, "j", forever)
	e.create(t, j)
	e.awaitJobSet(t, j, func(js *jobsetv1alpha2.JobSet) bool { return !jobSetSuspended(js) })

	wantFaults(t, update(t, e, j, queued(preferring(1), true)), "spec.runtimePatches: Forbidden: the JobSet cannot take this change: ")
	if err := update(t, e, j, queued(selecting("a"), true)); err != nil {
		t.Fatalf("refused: %v", err)
	}
	js := e.awaitJobSet(t, j, jobSetSuspended)
	check.Equal(t, "a", js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["pool"],
		"the JobSet was suspended with the node selector")
}

func TestImmutablePatchOfNeverStartedJobSet(t *testing.T) {
	e := env(t)
	j := job(e.namespace(t), "j", suspended, forever)
	e.create(t, j)
	js := e.awaitJobSet(t, j, jobSetSuspended)
	eventually(t, "suspended child Job", func(g gomega.Gomega) {
		var jobs batchv1.JobList
		g.Expect(e.List(t.Context(), &jobs, client.InNamespace(j.Namespace))).To(gomega.Succeed())
		g.Expect(jobs.Items).To(gomega.HaveLen(1))
	})
	err := update(t, e, js, func(js *jobsetv1alpha2.JobSet) {
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	})
	if !apierrors.IsInvalid(err) {
		t.Fatalf("JobSet does not refuse what this test is about: %v", err)
	}
	check.Equal(t, nil, update(t, e, j, queued(preferring(1), true)), "refused")
	e.awaitJobSet(t, j, func(js *jobsetv1alpha2.JobSet) bool { // The controller decides the same.
		return js.DeletionTimestamp == nil && js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Affinity != nil
	})
	// Faults of the new JobSet are still found.
	err = update(t, e, j, queued(preferring(101), true))
	wantFaults(t, err, "spec.runtimePatches[1]."+inFirstStep+
		`template.spec.template.spec.affinity: Invalid value: pods of replicated job "node" are refused: `)
}

func TestImmutablePatchOfStartedJobSetIsRefused(t *testing.T) {
	e := env(t)
	j := e.running(t, e.namespace(t))
	e.suspendedAgain(t, j)
	for name, suspend := range map[string]bool{"suspended": true, "resumed": false} {
		err := update(t, e, j, queued(preferring(1), suspend))
		wantFaults(t, err, `spec.runtimePatches: Forbidden: the JobSet cannot take this change: spec.replicatedJobs: Invalid value: `+
			`field is immutable; as it may have run already, only labels, annotations, nodeSelector, tolerations and schedulingGates of its `+
			`pods can change: leave the rest as it is, or create the TrainJob again`)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	check.Equal(t, nil, update(t, e, j, queued(selecting("a"), true)), "what JobSet can take is refused")
}

func TestFinalizerCanBeRemovedWithoutRuntime(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	uses := e.namespacedRuntime(t, ns, "mine")
	j := job(ns, "j", uses, suspended, func(j *trainer.TrainJob) {
		controllerutil.AddFinalizer(j, heldFinalizer)
		j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") // No snapshot.
	})
	e.create(t, j)
	check.Must(t, e.Delete(t.Context(), &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}}))
	v := e.validator(t)
	eventually(t, "runtime to be gone", func(g gomega.Gomega) {
		err := e.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "mine"}, &trainer.TrainingRuntime{})
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
	})
	check.Equal(t, nil, update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = new(false) }),
		"the job cannot be resumed")
	check.Equal(t, nil, update(t, e, j, queued(selecting("a"), true)),
		"a job that others manage cannot be patched while there is no runtime here")
	check.Must(t, e.Delete(t.Context(), j))
	going := e.get(t, j)
	changed := going.DeepCopy()
	changed.Annotations = map[string]string{v1alpha1.AnnotationTTL: "1h"} // config/webhook does not call the webhook.
	if _, err := v.ValidateUpdate(t.Context(), going, changed); err != nil {
		t.Errorf("a job that is going is looked at: %v", err)
	}
	check.Equal(t, nil, update(t, e, j, func(j *trainer.TrainJob) { controllerutil.RemoveFinalizer(j, heldFinalizer) }),
		"the finalizer cannot be removed")
	eventually(t, "job to go", func(g gomega.Gomega) {
		g.Expect(apierrors.IsNotFound(e.Get(t.Context(), client.ObjectKeyFromObject(j), j))).To(gomega.BeTrue())
	})
}

func TestSnapshotCountsForPatches(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	uses := e.namespacedRuntime(t, ns, "mine")
	j := job(ns, "j", uses, suspended)
	e.create(t, j)
	e.awaitJobSet(t, j, jobSetSuspended)
	// Now the runtime has the replicated job under another name.
	r := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}}
	err := update(t, e, r, func(r *trainer.TrainingRuntime) { r.Spec.Template.Spec.ReplicatedJobs[0].Name = "worker" })
	check.Must(t, err)
	try := func(when string) {
		check.Equal(t, nil, update(t, e, j, queued(selecting(when), true)),
			"runtime %s: a patch of what the job was built from is refused", when)
		wantFaults(t, update(t, e, j, queued(patched("acme.io/queue", "worker", trainer.PodSpecPatch{}), true)),
			"spec.runtimePatches[0]."+inFirstStep+`name: Not found: "worker": the replicated jobs of runtime "mine" are: "node"`)
	}
	try("changed")
	check.Must(t, e.Delete(t.Context(), r))
	try("gone")
}

func TestOnlyWhatChangesIsChecked(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	uses := e.namespacedRuntime(t, ns, "mine")
	elsewhere := func(j *trainer.TrainJob) { j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }
	j := job(ns, "j", uses, suspended, elsewhere, patchedBy(patched("acme.io/user", "node", trainer.PodSpecPatch{})))
	e.create(t, j)
	r := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}}
	err := update(t, e, r, func(r *trainer.TrainingRuntime) { r.Spec.Template.Spec.ReplicatedJobs[0].Name = "worker" })
	check.Must(t, err)
	queue := patched("acme.io/queue", "worker", trainer.PodSpecPatch{NodeSelector: map[string]string{"pool": "a"}})
	check.Equal(t, nil, update(t, e, j, queued(queue, true)),
		"a queue cannot patch because another patch has become wrong")
	wantFaults(t, update(t, e, j, queued(selecting("a"), true)), "spec.runtimePatches[1]."+inFirstStep+`name: Not found: "node"`)
}
