// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// queueing is a WorkerCluster that leads to the same cluster as east, and counts the quota of its Kueue.
const queueing = v1alpha1.ClusterName("queueing")

// withQuota installs Kueue's CRDs on east, and a queue "main" of ClusterQueue team-a in the scene's namespace.
func (s *scene) withQuota(t *testing.T, kueue v1alpha1.KueueCapacity) {
	t.Helper()
	check.Must(t, s.Worker(east).Cluster.ApplyFiles(t.Context(), "../../../capacity/testdata/kueue-crds.yaml"))
	s.Fleet.Ensure(queueing, remote.Credentials{Config: s.Worker(east).Cluster.Config, Fingerprint: "admin"}, s.Worker(east).ID, remote.CountQuota(true))
	t.Cleanup(func() { s.Fleet.Remove(queueing) })
	s.Register(t, queueing, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Kueue.Capacity = kueue })
	for _, object := range []*unstructured.Unstructured{
		kueueOn("ResourceFlavor", "", "h100", nil),
		kueueOn("LocalQueue", s.Namespace, "main", map[string]any{"clusterQueue": "team-a"}),
	} {
		s.onEast(t, object)
	}
	s.setQuota(t, 8)
}

func kueueOn(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := kueueObject("kueue.x-k8s.io/v1beta2", kind, name)
	object.SetNamespace(namespace)
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object
}

// onEast creates an object, or replaces it.
func (s *scene) onEast(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	admin := s.Worker(east).Admin
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(admin.Delete(context.WithoutCancel(t.Context()), object))) })
	served(t, object.GetKind(), func() error {
		before := object.DeepCopy()
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), before); err != nil {
			return admin.Create(t.Context(), object)
		}
		object.SetResourceVersion(before.GetResourceVersion())
		return admin.Update(t.Context(), object)
	})
}

// setQuota gives team-a quota for so many GPUs, and waits until the connection shows it.
func (s *scene) setQuota(t *testing.T, gpus int64) {
	t.Helper()
	quotas := func(resource, quota string) map[string]any {
		return map[string]any{"coveredResources": []any{resource}, "flavors": []any{map[string]any{
			"name": "h100", "resources": []any{map[string]any{"name": resource, "nominalQuota": quota}},
		}}}
	}
	s.onEast(t, kueueOn("ClusterQueue", "", "team-a", map[string]any{
		"resourceGroups": []any{quotas(string(gpu), fmt.Sprint(gpus)), quotas("cpu", "1k"), quotas("memory", "1Pi")},
	}))
	s.awaitQuota(t, func(q *v1alpha1.KueueQuota) bool {
		return len(q.ClusterQueues) == 1 && len(q.LocalQueues) == 1 && len(q.Flavors) == 1 &&
			q.ClusterQueues[0].Groups[0].Flavors[0].Quotas[0].Nominal == gpus
	})
}

// reserve makes Kueue's Workload of a job, with quota for so many GPUs, or without if there are none.
func (s *scene) reserve(t *testing.T, job string, gpus int64) {
	t.Helper()
	object := kueueOn("Workload", s.Namespace, "trainjob-"+job, map[string]any{"queueName": "main"})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: job, UID: types.UID(job), Controller: new(true),
	}})
	if gpus > 0 {
		object.Object["status"] = map[string]any{
			"conditions": []any{map[string]any{"type": "QuotaReserved", "status": "True"}},
			"admission": map[string]any{"clusterQueue": "team-a", "podSetAssignments": []any{map[string]any{
				"name": "node", "flavors": map[string]any{string(gpu): "h100"}, "resourceUsage": map[string]any{string(gpu): fmt.Sprint(gpus)},
			}}},
		}
	}
	s.onEast(t, object)
	s.awaitQuota(t, func(q *v1alpha1.KueueQuota) bool {
		for _, w := range q.Workloads {
			if w.Job == job {
				return (w.ClusterQueue != "") == (gpus > 0)
			}
		}
		return false
	})
}

func (s *scene) awaitQuota(t *testing.T, done func(*v1alpha1.KueueQuota) bool) {
	t.Helper()
	cluster, _ := s.Fleet.Get(queueing)
	gomega.NewWithT(t).Eventually(func() bool {
		quota := cluster.Inventory().Snapshot().Quota
		return cluster.Status().State == remote.Connected && cluster.Status().Capacity == capacity.Known && quota != nil && done(quota)
	}, check.Patience, 10*time.Millisecond).Should(gomega.BeTrue(), "the connection shows the quota")
}

// inTeamQueue puts a job of eight GPUs into the queue, on the worker that counts quota.
func inTeamQueue(job *trainer.TrainJob) {
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "main"}
	job.Annotations = map[string]string{v1alpha1.AnnotationClusters: "region=" + string(queueing)}
}

// expectPlaced reconciles a job, and expects that it is on the worker, or that it waits and its Dispatch says why.
func (s *scene) expectPlaced(t *testing.T, name string, want bool, words string) {
	t.Helper()
	d, _ := s.reconcile(t, name)
	if d == nil {
		t.Fatalf("%s has no Dispatch", name)
	}
	placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	if (d.Spec.Cluster == queueing) != want || placed == nil && !want || !want && !strings.Contains(placed.Message, words) {
		t.Fatalf("%s is on %q, want on %s: %t\n%+v\nwant in it: %s", name, d.Spec.Cluster, queueing, want, placed, words)
	}
	s.tell(d)
}

// TestQuotaAndNodesAsCapacity: a job waits for quota and for nodes, and nothing counts twice.
func TestQuotaAndNodesAsCapacity(t *testing.T) {
	s := newScene(t)
	s.withQuota(t, v1alpha1.KueueCapacityQuotaAndNodes)
	lacking := "ClusterQueue team-a has 0 of the 8 nvidia.com/gpu that the job needs, flavor h100"
	s.Submit(t, "first", inTeamQueue)
	s.expectPlaced(t, "first", true, "")
	s.Submit(t, "second", inTeamQueue)
	s.expectPlaced(t, "second", false, lacking)
	// The Workload of the first job, waiting or not, is the first job: it counts once.
	s.reserve(t, "first", 0)
	s.restart(t)
	s.expectPlaced(t, "second", false, lacking)
	s.setQuota(t, 16)
	s.reserve(t, "first", 8)
	s.expectPlaced(t, "second", true, "")
	s.setQuota(t, 24)
	s.Submit(t, "third", inTeamQueue)
	s.expectPlaced(t, "third", false, "lacks 8 nvidia.com/gpu") // The worker has 16 GPUs.
}

// TestQuotaAloneAsCapacity: a job in a queue needs quota, and no nodes. Another job needs nodes.
func TestQuotaAloneAsCapacity(t *testing.T) {
	s := newScene(t)
	s.withQuota(t, v1alpha1.KueueCapacityQuota)
	s.setQuota(t, 24)
	for _, name := range []string{"first", "second", "third"} {
		s.Submit(t, name, inTeamQueue)
		s.expectPlaced(t, name, true, "")
	}
	s.Submit(t, "fourth", inTeamQueue)
	s.expectPlaced(t, "fourth", false, "ClusterQueue team-a has 0 of the 8 nvidia.com/gpu that the job needs, flavor h100")
	s.Submit(t, "elsewhere", inTeamQueue, func(job *trainer.TrainJob) { job.Labels["kueue.x-k8s.io/queue-name"] = "typo" })
	s.expectPlaced(t, "elsewhere", false, fmt.Sprintf("the worker has no LocalQueue %s/typo", s.Namespace))
	s.Submit(t, "unqueued", inTeamQueue, func(job *trainer.TrainJob) { job.Labels = nil })
	s.expectPlaced(t, "unqueued", false, "nvidia.com/gpu")
}
