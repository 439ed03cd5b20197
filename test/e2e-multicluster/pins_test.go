// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"path/filepath"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// A worker has another runtime under the name of the jobs' runtime. The pods are those of the hub's runtime, also after it
// has changed while a job runs, and each job keeps its own. When no copy names a pinned runtime, it goes, and the worker's own
// stays as it is. What somebody else has put under the name of a pinned runtime is left alone, and the job says so.
func TestPinnedRuntimes(t *testing.T) {
	const name = "pinned"
	root, err := clusters.ModuleDir(t.Context(), "github.com/trainyard/trainyard")
	check.Must(t, err)
	check.Must(t, y.Yard.Workers[large].ApplyKustomization(t.Context(), filepath.Join(root, "config/worker-pins")))
	ours := map[string]string{"team": name}
	apply(t, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DispatchPolicySpec{
		Priority: 5, Runtime: v1alpha1.RuntimePin,
		Jobs:     v1alpha1.JobSelector{Selector: &metav1.LabelSelector{MatchLabels: ours}},
		Clusters: v1alpha1.ClusterSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"size": large}}},
	}})
	shared := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: yard.RuntimeName}}
	current(t.Context(), gomega.NewWithT(t), y.Hub, shared)
	runtime := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Spec: shared.Spec}
	of := func(whose string) func(*trainer.TrainingRuntime) {
		return func(r *trainer.TrainingRuntime) {
			pods := &r.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
			pods.Labels = map[string]string{"of": whose}
		}
	}
	onHub, onWorker := runtime.DeepCopy(), runtime.DeepCopy()
	of("hub")(onHub)
	of("worker")(onWorker)
	for c, runtime := range map[client.Client]*trainer.TrainingRuntime{y.Hub: onHub, y.Workers[large]: onWorker} {
		check.Must(t, c.Create(t.Context(), runtime))
		t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(c.Delete(context.Background(), runtime))) })
	}
	worker := y.Workers[large]
	create := func(name string) *trainer.TrainJob {
		job := yard.Job{Name: name, GPUs: 1, RunFor: clusters.RunForever}.TrainJob()
		job.Labels, job.Spec.RuntimeRef.Kind, job.Spec.RuntimeRef.Name = ours, ptr.To(trainer.TrainingRuntimeKind), runtime.Name
		check.Must(t, y.Hub.Create(t.Context(), job))
		t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job))) })
		return job
	}
	runs := func(job *trainer.TrainJob, whose string) (pinned string) {
		t.Helper()
		y.Eventually(t, func(g gomega.Gomega) {
			pods := &corev1.PodList{}
			g.Expect(worker.List(t.Context(), pods, client.InNamespace(job.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.Name})).To(gomega.Succeed())
			g.Expect(pods.Items).To(gomega.HaveLen(1))
			g.Expect(pods.Items[0].Labels).To(gomega.HaveKeyWithValue("of", whose))
			g.Expect(y.DispatchOf(g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
			copy := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
			pinned = current(t.Context(), g, worker, copy).Spec.RuntimeRef.Name
		})
		return pinned
	}
	first := create("pinned-first")
	pinned := runs(first, "hub")

	edit(t.Context(), t, y.Hub, onHub, of("newer"))
	second := create("pinned-second")
	newer := runs(second, "newer")
	check.Equal(t, pinned, runs(first, "hub"), "the runtime of the first job, after a change on the hub")
	check.Equal(t, v1alpha1.RuntimePin, y.DispatchOf(gomega.NewWithT(t), second).Spec.Runtime, "spec.runtime of the Dispatch")

	check.Must(t, y.Hub.Delete(t.Context(), first))
	check.Must(t, y.Hub.Delete(t.Context(), second))
	y.Eventually(t, func(g gomega.Gomega) {
		for _, name := range []string{pinned, newer} {
			err := worker.Get(t.Context(), client.ObjectKey{Namespace: runtime.Namespace, Name: name}, &trainer.TrainingRuntime{})
			g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
			g.Expect(err).To(gomega.HaveOccurred(), "the worker still has %s", name)
		}
	})
	check.Equal(t, int64(1), current(t.Context(), gomega.NewWithT(t), worker, onWorker).Generation, "the generation of the worker's own runtime")

	foreign := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: runtime.Namespace, Name: newer}, Spec: onWorker.Spec}
	check.Must(t, worker.Create(t.Context(), foreign))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(worker.Delete(context.Background(), foreign))) })
	third := create("pinned-third")
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.DispatchOf(g, third).Status.Explanation).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Cluster", v1alpha1.ClusterName(large)), gomega.HaveField("Reason", string(v1alpha1.OutcomeRejected)),
			gomega.HaveField("Message", gomega.ContainSubstring("TrainingRuntime default/"+newer)))))
	})
	version := foreign.ResourceVersion
	check.Equal(t, version, current(t.Context(), gomega.NewWithT(t), worker, foreign).ResourceVersion, "the version of the foreign runtime")
}
