// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

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
		if got := object.GetLabels()[v1alpha1.LabelPropagatedBy]; got != string(hubID.UID) {
			t.Errorf("%T on the worker is labelled %q, want the hub's ID %q", object, got, hubID.UID)
		}
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
