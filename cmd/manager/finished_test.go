// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

// TestStartAmongFinishedJobs starts a manager on a hub with more finished jobs than a request of a list gets. New jobs
// are taken up, trainyard_jobs counts all, and what is to be archived and deleted is.
func TestStartAmongFinishedJobs(t *testing.T) {
	w := hub(t)
	const namespace, number, expiring = "among-finished", 520, 3
	w.namespace(t, namespace)
	all, ctx := errgroup.WithContext(t.Context())
	all.SetLimit(8)
	for i := range number {
		all.Go(func() error { return w.finish(ctx, namespace, fmt.Sprintf("old-%03d", i), i < expiring) })
	}
	check.Must(t, all.Wait())
	w.cleanJobs(t, namespace)
	check.Must(t, w.admin.Create(t.Context(), newJob(namespace, "before")))
	policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: v1alpha1.DispatchPolicySpec{
		TTLSecondsAfterFinished: new(int32(0)),
		Jobs:                    v1alpha1.JobSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"expires": "yes"}}},
	}}
	check.Must(t, w.admin.Create(t.Context(), policy))
	t.Cleanup(func() { check.Must(t, w.admin.Delete(context.Background(), policy)) })

	address, err := ports.Free()
	check.Must(t, err)
	archive := t.TempDir()
	w.start(t, "--webhook-bind-address=0", "--archive-dir="+archive, "--metrics-bind-address="+address, "--metrics-secure=false")
	check.Must(t, w.admin.Create(t.Context(), newJob(namespace, "after")))
	for _, name := range []string{"after", "before"} {
		eventually(t, "the job "+name+" to be taken up", func(g gomega.Gomega) {
			g.Expect(w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.Dispatch{})).To(gomega.Succeed())
		})
	}
	for i := range expiring {
		eventually(t, "a job to be deleted after its end", func(g gomega.Gomega) {
			err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("old-%03d", i)}, &v1alpha1.Dispatch{})
			g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
		})
	}
	want := fmt.Sprintf(`trainyard_jobs{cluster="%s",phase="Finished"} %d`, namespace, number-expiring)
	eventually(t, "trainyard_jobs to count the others", func(g gomega.Gomega) {
		g.Expect(scrape(g, address)).To(gomega.ContainSubstring(want))
	})
	check.Equal(t, expiring, linesIn(t, archive), "entries in the archive")
}

// finish creates a job that has ended on a worker, which has the name of the namespace.
func (w *world) finish(ctx context.Context, namespace, name string, expires bool) error {
	job := newJob(namespace, name)
	if expires {
		job.Labels = map[string]string{"expires": "yes"}
	}
	if err := w.admin.Create(ctx, job); err != nil {
		return err
	}
	end := metav1.Condition{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: metav1.Now()}
	job.Status.Conditions = []metav1.Condition{end}
	if err := w.admin.Status().Update(ctx, job); err != nil {
		return err
	}
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(job, trainer.SchemeGroupVersion.WithKind(trainer.TrainJobKind)),
		}},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: name, UID: job.UID}, Cluster: v1alpha1.ClusterName(namespace), Attempt: 1,
		},
	}
	if err := w.admin.Create(ctx, d); err != nil {
		return err
	}
	record.Finish(&d.Status, d, &end, end.LastTransitionTime.Time)
	return w.admin.Status().Update(ctx, d)
}

// cleanJobs deletes the jobs of a namespace, and their Dispatches, when the test ends.
func (w *world) cleanJobs(t *testing.T, namespace string) {
	t.Helper()
	t.Cleanup(func() {
		for _, kind := range []client.Object{&trainer.TrainJob{}, &v1alpha1.Dispatch{}} {
			check.Must(t, w.admin.DeleteAllOf(context.Background(), kind, client.InNamespace(namespace)))
		}
	})
}

func scrape(g gomega.Gomega, address string) string {
	answer, err := http.Get("http://" + address + "/metrics")
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	return string(text)
}

// linesIn counts the lines of all files in a directory.
func linesIn(t *testing.T, dir string) (lines int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	check.Must(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		check.Must(t, err)
		lines += strings.Count(string(data), "\n")
	}
	return lines
}
