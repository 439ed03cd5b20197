// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// A worker refuses a job for what it lacks. Somebody repairs that, and the job's owner has the worker asked again with the
// plugin, before the back-off is over.
func TestRetry(t *testing.T) {
	const namespace = "retried"
	for _, c := range []client.Client{y.Hub, y.Workers[small]} {
		check.Must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-trainjobs"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/trainjobs.trainer.kubeflow.org": resource.MustParse("0")}},
	}
	check.Must(t, y.Workers[small].Create(t.Context(), quota))
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(current(t.Context(), g, y.Workers[small], quota).Status.Hard).To(gomega.HaveLen(1))
	})
	y.Cordon(t, large, true)
	job := submit(t, yard.Job{Namespace: namespace, Name: "retried", GPUs: 1, RunFor: "1s"})
	waitsFor(t, job, v1alpha1.ReasonRejected)
	// A second refusal, so that the back-off is long enough for a slow machine.
	edit(t.Context(), t, y.Hub, job, func(job *trainer.TrainJob) { metav1.SetMetaDataAnnotation(&job.ObjectMeta, "example.com/note", "x") })
	var waiting *v1alpha1.Dispatch
	y.Eventually(t, func(g gomega.Gomega) {
		waiting = waitsFor(t, job, v1alpha1.ReasonRejected)
		g.Expect(waiting.Status.Refusals).To(gomega.HaveLen(1))
		g.Expect(waiting.Status.Refusals[0].Count).To(gomega.Equal(int32(2)))
	})
	check.Must(t, y.Workers[small].Delete(t.Context(), quota))
	said, err := y.Plugin(t.Context(), "retry", job.Name, "-n", namespace, "--kubeconfig", y.Yard.Hub.KubeconfigPath)
	check.Must(t, err)
	if want := "trainjob.trainer.kubeflow.org/retried retried: asked again: " + small + "\n"; string(said) != want {
		t.Errorf("the plugin says %q, want %q", said, want)
	}
	placedOn(t, job)
	if over := waiting.Status.Refusals[0].Last.Add(record.Backoff(2)); !time.Now().Before(over) {
		t.Errorf("the back-off was over at %s", over)
	}
	expectEvents(t, job, "Retried")
	ends(t, job, trainer.TrainJobComplete)
	copied := &trainer.TrainJob{}
	check.Must(t, y.Workers[small].Get(t.Context(), client.ObjectKeyFromObject(job), copied))
	if text, there := copied.Annotations[v1alpha1.AnnotationRetry]; there {
		t.Errorf("the copy has the annotation: %q", text)
	}
}

// A job that no worker can take fails after giveUpAfter of its policy, in the words of the explanation. Its TTL counts
// from then.
func TestGiveUp(t *testing.T) {
	const namespace = "given-up"
	check.Must(t, y.Hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	apply(t, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: v1alpha1.DispatchPolicySpec{
		Jobs:        v1alpha1.JobSelector{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}},
		GiveUpAfter: &metav1.Duration{Duration: 3 * time.Second},
	}})
	job := submit(t, yard.Job{Namespace: namespace, Name: "too-large", Nodes: 9, GPUs: 8})
	failed := meta.FindStatusCondition(ends(t, job, trainer.TrainJobFailed).Status.Conditions, trainer.TrainJobFailed)
	for _, words := range []string{"no worker took the job within 3s", "NoFit: " + large + ": InsufficientResources: ", "; " + small + ": "} {
		if failed.Reason != v1alpha1.ReasonGivenUp || !strings.Contains(failed.Message, words) {
			t.Errorf("the TrainJob says %s: %s, want %q", failed.Reason, failed.Message, words)
		}
	}
	if waited := failed.LastTransitionTime.Sub(job.CreationTimestamp.Time); waited < 3*time.Second {
		t.Errorf("the job was given up after %s", waited)
	}
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(record.StateOf(d)).To(gomega.Equal(record.Finished))
		g.Expect(d.Status.Reason).To(gomega.Equal(v1alpha1.ReasonGivenUp))
	})
	expectEvents(t, job, v1alpha1.ReasonGivenUp)
	said, err := y.Plugin(t.Context(), "explain", job.Name, "-n", namespace, "--kubeconfig", y.Yard.Hub.KubeconfigPath)
	check.Must(t, err)
	for _, words := range []string{"Failed (GivenUp)", "no worker took the job within 3s", small + "    "} {
		if !strings.Contains(string(said), words) {
			t.Errorf("explain does not say %q:\n%s", words, said)
		}
	}
	edit(t.Context(), t, y.Hub, job, func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationTTL, "0")
	})
	y.Eventually(t, func(g gomega.Gomega) {
		err := y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), &trainer.TrainJob{})
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "the TrainJob is still there: %v", err)
	})
}
