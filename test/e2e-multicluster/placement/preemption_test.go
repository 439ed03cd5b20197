// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// An important job preempts as many jobs of lower priority as necessary. They run again after it.
func TestPreemption(t *testing.T) {
	ns := namespace(t, "preemption")
	watchSchedulers(t, ns)
	create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})
	create(t, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "preemption"}, Spec: v1alpha1.DispatchPolicySpec{
		Jobs:       v1alpha1.JobSelector{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}},
		Clusters:   v1alpha1.ClusterSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": octets}}},
		Preemption: v1alpha1.PreemptLowerPriority,
	}})
	for i := range 3 {
		job := yard.Job{Namespace: ns, Name: fmt.Sprintf("low-%d", i), GPUs: 8, RunFor: clusters.RunForever}.TrainJob()
		check.Must(t, y.Hub.Create(t.Context(), job))
	}
	placed(t, ns, 3)

	urgent := yard.Job{Namespace: ns, Name: "urgent", Nodes: 2, GPUs: 8, RunFor: "1s"}.TrainJob()
	urgent.Annotations = map[string]string{v1alpha1.AnnotationPriorityClass: "urgent"}
	check.Must(t, y.Hub.Create(t.Context(), urgent))
	complete(t, urgent)

	y.Eventually(t, func(g gomega.Gomega) {
		var all v1alpha1.DispatchList
		g.Expect(y.Hub.List(t.Context(), &all, client.InNamespace(ns))).To(gomega.Succeed())
		moved := 0
		for i := range all.Items {
			d := &all.Items[i]
			if d.Name == urgent.Name {
				continue
			}
			g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(octets), d.Name)
			g.Expect(d.Spec.Eviction).To(gomega.BeNil(), d.Name)
			if d.Spec.Attempt == 2 {
				g.Expect(d.Status.History).To(gomega.HaveLen(1))
				g.Expect(d.Status.History[0].Outcome).To(gomega.Equal(v1alpha1.OutcomePreempted))
				g.Expect(d.Status.Refusals).To(gomega.BeEmpty())
				moved++
			}
		}
		g.Expect(moved).To(gomega.Equal(2), "jobs that made room")
	})
}

func create(t *testing.T, object client.Object) {
	t.Helper()
	check.Must(t, y.Hub.Create(t.Context(), object))
	t.Cleanup(func() { check.Must(t, y.Hub.Delete(context.Background(), object)) })
}

// complete waits until a job is Complete on the hub.
func complete(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue(), job.Name)
	})
}
