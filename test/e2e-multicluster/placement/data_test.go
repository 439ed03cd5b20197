// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// Jobs that prefer data run where it is, and a job that requires data waits until a worker lists it, without an attempt.
func TestDataWhereItIs(t *testing.T) {
	ns := namespace(t, "data")
	create(t, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: v1alpha1.DispatchPolicySpec{
		Jobs:    v1alpha1.JobSelector{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}},
		Scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreDataLocality}},
	}})
	lists := func(worker string, data ...v1alpha1.WorkerData) {
		y.Edit(t, worker, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Data = data })
	}
	for _, worker := range []string{quads, octets, singles} {
		t.Cleanup(func() { lists(worker) })
	}
	lists(quads, v1alpha1.WorkerData{Prefix: "s3://corpora/", Cost: 60})
	lists(octets, v1alpha1.WorkerData{Prefix: "s3://corpora/en", Cost: 20}, v1alpha1.WorkerData{Prefix: "s3://corpora", Cost: 90})
	submit := func(name, data string) *trainer.TrainJob {
		job := yard.Job{Namespace: ns, Name: name, GPUs: 1, RunFor: "1s"}.TrainJob()
		job.Annotations = map[string]string{v1alpha1.AnnotationData: data}
		check.Must(t, y.Hub.Create(t.Context(), job))
		return job
	}

	needs := submit("needs", "required=s3://models/llm")
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, needs)
		placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
		g.Expect(placed).NotTo(gomega.BeNil())
		g.Expect(placed.Reason).To(gomega.Equal(v1alpha1.ReasonDataNotFound), placed.Message)
		g.Expect(placed.Message).To(gomega.ContainSubstring("s3://models/llm"))
		g.Expect(d.Status.Explanation).To(gomega.HaveLen(3))
		for _, line := range d.Status.Explanation {
			g.Expect(line.Reason).To(gomega.Equal(v1alpha1.ReasonDataElsewhere), line.Message)
		}
		g.Expect(d.Spec.Attempt).To(gomega.BeZero())
	})

	for name, want := range map[string]struct{ data, worker, decision string }{
		"english": {"preferred=s3://corpora/en/2026", octets, "score 80: DataLocality 80 (s3://corpora/en costs 20); the highest of 3 workers"},
		"german":  {"preferred=s3://corpora/de,s3://corpora/fr", quads, "score 40: DataLocality 40 (s3://corpora costs 60); the highest of 3 workers"},
	} {
		job := submit(name, want.data)
		complete(t, job)
		y.Eventually(t, func(g gomega.Gomega) {
			d := y.DispatchOf(g, job)
			g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(want.worker), name)
			g.Expect(d.Annotations[v1alpha1.AnnotationDecision]).To(gomega.HavePrefix(want.decision))
		})
	}

	lists(singles, v1alpha1.WorkerData{Prefix: "s3://mod*", Cost: 100})
	complete(t, needs)
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, needs)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(singles))
		g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(1))
	})
}
