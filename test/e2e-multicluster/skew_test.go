// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// A worker has the CRDs of an older Kubeflow Trainer. The hub says so, and keeps the jobs off it that use what it does not
// know, without an attempt. When the worker is upgraded, that ends.
func TestWorkerWithAnOlderTrainer(t *testing.T) {
	const name = "older"
	old, err := clusters.ReleaseCRDs(t.Context(), clusters.Trainer20)
	check.Must(t, err)
	crds, err := clusters.ModulePaths(t.Context(), clusters.JobSetCRDs, clusters.TrainerCRDs)
	check.Must(t, err)
	older, err := clusters.Start(t.Context(), clusters.Options{Name: name, CRDs: []string{old, crds[0]}})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, older.Stop()) })
	register(t, name, adminKubeconfig(t, older))
	edit(t.Context(), t, y.Hub, workerCluster(name), func(worker *v1alpha1.WorkerCluster) {
		worker.Labels = map[string]string{"size": name}
	})
	expectReady(t, name, v1alpha1.ReasonConnected)
	worker := workerCluster(name)
	y.Eventually(t, func(g gomega.Gomega) {
		current(t.Context(), g, y.Hub, worker)
		g.Expect(worker.Status.Trainer.Release).To(gomega.Equal("2.0"))
		g.Expect(worker.Status.Trainer.Missing).To(gomega.ContainElements("activeDeadlineSeconds", "runtimePatches"))
		skew := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterSkewUnsupported)
		g.Expect(skew).NotTo(gomega.BeNil())
		g.Expect(skew.Reason).To(gomega.Equal(v1alpha1.ReasonWorkerTooOld))
	})

	// The job has runtimePatches: they say for how long its pods run.
	pinned := yard.Job{Name: "pinned-to-older", GPUs: 1, RunFor: "1s"}.TrainJob()
	pinned.Annotations = map[string]string{v1alpha1.AnnotationClusters: "size=" + name}
	check.Must(t, y.Hub.Create(t.Context(), pinned))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), pinned))) })
	explained := func(g gomega.Gomega) v1alpha1.ClusterExplanation {
		d := y.DispatchOf(g, pinned)
		g.Expect(d.Spec.Attempt).To(gomega.BeZero())
		at := slices.IndexFunc(d.Status.Explanation, func(line v1alpha1.ClusterExplanation) bool { return line.Cluster == name })
		g.Expect(at).NotTo(gomega.Equal(-1), "there is no line for the worker")
		return d.Status.Explanation[at]
	}
	y.Eventually(t, func(g gomega.Gomega) {
		line := explained(g)
		g.Expect(line.Reason).To(gomega.Equal(v1alpha1.ReasonFieldUnknown))
		// The hub's CRD gives each replicated job of a runtime a group by default.
		g.Expect(line.Message).To(gomega.Equal(`its TrainJobs do not have spec.runtimePatches; ClusterTrainingRuntime "` + yard.RuntimeName +
			`" uses spec.template.spec.replicatedJobs.groupName, which its runtimes do not have (Kubeflow Trainer 2.0, with spec.podSpecOverrides)`))
	})
	ends(t, submit(t, yard.Job{Name: "beside-older", GPUs: 1, RunFor: "1s"}), trainer.TrainJobComplete)

	check.Must(t, older.InstallCRDs(t.Context(), crds[1]))
	y.Eventually(t, func(g gomega.Gomega) {
		current(t.Context(), g, y.Hub, worker)
		g.Expect(worker.Status.Trainer.Release).To(gomega.Equal("2.3"))
		g.Expect(meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterSkewUnsupported)).To(gomega.BeNil())
		line := explained(g)
		g.Expect(line.Reason).NotTo(gomega.Equal(v1alpha1.ReasonFieldUnknown), line.Message) // It has no nodes.
	})
}
