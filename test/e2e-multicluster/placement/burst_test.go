// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

// 54 jobs come at once to workers that hold 42. No worker gets a job for which its scheduler has no node. As jobs end,
// the first jobs of the waiting list follow.
func TestBurst(t *testing.T) {
	const jobs, room, batch = 54, 42, 6
	ns := namespace(t, "burst")
	bound := watchSchedulers(t, ns)
	var order []*trainer.TrainJob
	for i := range jobs {
		job := yard.Job{Namespace: ns, Name: fmt.Sprintf("job-%03d", i), GPUs: 1, RunFor: clusters.RunForever}.TrainJob()
		check.Must(t, y.Hub.Create(t.Context(), job))
		order = append(order, job)
	}
	slices.SortFunc(order, func(a, b *trainer.TrainJob) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})

	running := placed(t, ns, room)
	bound.wait(t, room) // If a job ends before its pod has a node, the pod never gets one.
	waiting := slices.DeleteFunc(slices.Clone(order), func(job *trainer.TrainJob) bool { return running[job.Name] })
	for len(waiting) > 0 {
		next := waiting[:min(batch, len(waiting))]
		ended := 0
		for _, job := range order {
			if running[job.Name] && ended < len(next) {
				ended++
				delete(running, job.Name)
				check.Must(t, y.Hub.Delete(t.Context(), job))
			}
		}
		for _, job := range next {
			running[job.Name] = true
		}
		now := placed(t, ns, room)
		for name := range now {
			if !running[name] {
				t.Errorf("%s is placed, before jobs that are older", name)
			}
		}
		running, waiting = now, waiting[len(next):]
		bound.wait(t, jobs-len(waiting))
	}
}

// placed waits until so many jobs of a namespace are placed and the others wait, and returns the placed jobs.
func placed(t *testing.T, namespace string, want int) map[string]bool {
	t.Helper()
	var names map[string]bool
	y.Eventually(t, func(g gomega.Gomega) {
		var all v1alpha1.DispatchList
		g.Expect(y.Hub.List(t.Context(), &all, client.InNamespace(namespace))).To(gomega.Succeed())
		names = map[string]bool{}
		for i := range all.Items {
			if d := &all.Items[i]; d.Spec.Cluster != "" && d.DeletionTimestamp == nil {
				names[d.Name] = true
			}
		}
		g.Expect(names).To(gomega.HaveLen(want))
	})
	return names
}

// Gangs of several sizes come to workers that are always full. No worker gets more than its nodes can hold.
func TestGangsOfSeveralSizes(t *testing.T) {
	ns := namespace(t, "gangs")
	watchSchedulers(t, ns)
	sizes := []yard.Job{{Nodes: 2, GPUs: 8}, {Nodes: 3, GPUs: 4}, {Nodes: 5, GPUs: 2}, {Nodes: 6, GPUs: 1}}
	var jobs []*trainer.TrainJob
	for i := range 12 {
		job := sizes[i%len(sizes)]
		job.Namespace, job.Name, job.RunFor = ns, fmt.Sprintf("gang-%02d", i), "1s"
		object := job.TrainJob()
		check.Must(t, y.Hub.Create(t.Context(), object))
		jobs = append(jobs, object)
	}
	for _, job := range jobs {
		complete(t, job)
	}
}

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
