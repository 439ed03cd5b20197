// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
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
