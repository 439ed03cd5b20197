// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
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

var hopper = map[string]string{"gpu": "h100"}

// startedByKueue is a job into which the hub's Kueue has written the labels of its flavor.
func startedByKueue(job *trainer.TrainJob) {
	queued(job)
	entry := trainjobs.HubFlavors([]trainer.ReplicatedJobPatch{trainjobs.OnNodes("node", hopper, nil)})
	entry.Manager = trainjobs.KueueManager
	job.Spec.RuntimePatches = []trainer.RuntimePatch{*entry}
}

// labelNodes gives all nodes of a worker labels for the time of the test.
func (s *scene) labelNodes(t *testing.T, worker v1alpha1.ClusterName, labels map[string]string) {
	t.Helper()
	for i := range 2 {
		node := &corev1.Node{}
		check.Must(t, s.Worker(worker).Admin.Get(t.Context(), client.ObjectKey{Name: fmt.Sprintf("node-%d", i)}, node))
		before := node.DeepCopy()
		node.Labels = labels
		check.Must(t, s.Worker(worker).Admin.Patch(t.Context(), node, client.MergeFrom(before)))
		t.Cleanup(func() {
			labeled := node.DeepCopy()
			node.Labels = before.Labels
			check.Must(t, s.Worker(worker).Admin.Patch(context.WithoutCancel(t.Context()), node, client.MergeFrom(labeled)))
		})
	}
}

// The flavors of a job that the hub's Kueue has started say which nodes have room for it, if its policy wants that.
func TestFlavorsOfAStartedJob(t *testing.T) {
	for _, flavors := range []v1alpha1.HubFlavors{"", v1alpha1.HubFlavorsIgnore} {
		s := newScene(t)
		s.Policy(t, v1alpha1.DispatchPolicySpec{HubFlavors: flavors})
		s.Submit(t, "job", startedByKueue)
		if d, _ := s.reconcile(t, "job"); d.Spec.Cluster == "" || len(d.Spec.PodSets[0].NodeSelector) > 0 {
			t.Errorf("with hubFlavors %q the Dispatch is %+v, want it placed without a node selector", flavors, d.Spec)
		}
	}
	for _, flavors := range []v1alpha1.HubFlavors{v1alpha1.HubFlavorsRequire, v1alpha1.HubFlavorsPropagate} {
		t.Run(string(flavors), func(t *testing.T) {
			s := newScene(t)
			s.Policy(t, v1alpha1.DispatchPolicySpec{HubFlavors: flavors})
			s.Submit(t, "job", startedByKueue)
			s.expect(t, "job", v1alpha1.ReasonNoFit)
			s.labelNodes(t, west, hopper)
			gomega.NewWithT(t).Eventually(func() v1alpha1.ClusterName {
				d, _ := s.reconcile(t, "job")
				return d.Spec.Cluster
			}, check.Patience, 10*time.Millisecond).Should(gomega.Equal(west), "the worker with the labels")
		})
	}
}

// assign writes the flavor that Kueue has assigned to the pods of a job into its Workload.
func (k *kueueAPI) assign(t *testing.T, job, flavor string) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"admission": map[string]any{
		"clusterQueue": "research", "podSetAssignments": []any{map[string]any{
			"name": "node", "flavors": map[string]any{"cpu": flavor, "nvidia.com/gpu": flavor},
		}},
	}}})
	check.Must(t, err)
	check.Must(t, k.Hub.Admin.Status().Patch(t.Context(), w, client.RawPatch("application/merge-patch+json", patch)))
}

// Before Kueue resumes a job, its flavors come from its Workload. Until they are known, the job waits.
func TestFlavorsOfAJobWithQuota(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Policy(t, v1alpha1.DispatchPolicySpec{HubFlavors: v1alpha1.HubFlavorsRequire})
	k.Submit(t, "gated", queued, suspendedJob)
	k.setWorkload(t, "gated", kueue.Held, []string{withQuota}, provisioningCheck+":Pending", pending)
	k.assign(t, "gated", k.Namespace)
	k.decideTheRest(t, "gated")
	k.checked(t, "gated", kueues.CheckPending, v1alpha1.ReasonWaitingForWorkload)
	k.waits(t, "gated", v1alpha1.ReasonWaitingForWorkload, fmt.Sprintf("ResourceFlavor %q", k.Namespace))

	flavor := kueueObject("kueue.x-k8s.io/v1beta2", "ResourceFlavor", k.Namespace)
	flavor.Object["spec"] = map[string]any{
		"nodeLabels":  map[string]any{"gpu": "b200"},
		"tolerations": []any{map[string]any{"key": "spot", "operator": "Exists"}},
	}
	check.Must(t, k.Hub.Admin.Create(t.Context(), flavor))
	t.Cleanup(func() { check.Must(t, k.Hub.Admin.Delete(context.WithoutCancel(t.Context()), flavor)) })
	k.checked(t, "gated", kueues.CheckPending, v1alpha1.ReasonNoFit)
	k.labelNodes(t, west, hopper)
	flavor.Object["spec"].(map[string]any)["nodeLabels"] = map[string]any{"gpu": "h100"}
	check.Must(t, k.Hub.Admin.Update(t.Context(), flavor))
	d, _ := k.checked(t, "gated", kueues.CheckReady, string(west))
	want := []any{hopper, []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}}
	check.Diff(t, want, []any{d.Spec.PodSets[0].NodeSelector, d.Spec.PodSets[0].Tolerations}, "the PodSet of the Dispatch")
}

// decideTheRest makes all checks of a job but Trainyard's Ready, and waits until the Watch says so.
func (k *kueueAPI) decideTheRest(t *testing.T, job string) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	check.Must(t, k.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	w.Object["status"].(map[string]any)["admissionChecks"] = []any{
		map[string]any{"name": provisioningCheck, "state": kueues.CheckReady},
		map[string]any{"name": roomCheck, "state": kueues.CheckPending},
	}
	check.Must(t, k.Hub.Admin.Status().Update(t.Context(), w))
	k.awaitStanding(t, job, kueue.QuotaReserved)
}

// setQueue sets the LocalQueue into which copies come on the worker that counts quota.
func (s *scene) setQueue(t *testing.T, queue v1alpha1.WorkerQueue) {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: string(queueing)}}
	patch := fmt.Sprintf(`{"spec":{"kueue":{"workerQueue":%q}}}`, queue)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), worker, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// expectQueue expects what the Dispatch of a job says about its LocalQueue.
func (s *scene) expectQueue(t *testing.T, name string, want *string) {
	t.Helper()
	d := s.Dispatch(t, name)
	if got := d.Spec.LocalQueue; (got == nil) != (want == nil) || ptr.Deref(got, "") != ptr.Deref(want, "") {
		t.Errorf("the Dispatch of %s says %q (%t), want %q (%t)", name, ptr.Deref(got, ""), got != nil, ptr.Deref(want, ""), want != nil)
	}
}

// gated is a job that Kueue on the hub has started, by a flavor without labels.
func gated(job *trainer.TrainJob) {
	inTeamQueue(job)
	job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, trainer.RuntimePatch{
		Manager: trainjobs.KueueManager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{
			ReplicatedJobs: []trainer.ReplicatedJobPatch{{Name: "node"}},
		}}},
	})
}

// TestQueueOfTheWorker: the queue that gets the copy is the queue whose quota counts, and the Dispatch names it.
func TestQueueOfTheWorker(t *testing.T) {
	s := newScene(t)
	s.withQuota(t, v1alpha1.KueueCapacityQuotaAndNodes)
	unqueued := func(job *trainer.TrainJob) {
		inTeamQueue(job)
		job.Labels = nil
	}
	s.Submit(t, "gated", gated)
	s.expectPlaced(t, "gated", true, "")
	s.expectQueue(t, "gated", ptr.To(""))
	s.setQueue(t, "main")
	s.Submit(t, "named", unqueued)
	s.expectPlaced(t, "named", true, "") // All quota is there: the first job is in no queue.
	s.expectQueue(t, "named", ptr.To("main"))
	// A later setting has no effect on jobs that have their queue, also after a restart.
	s.setQueue(t, v1alpha1.WorkerQueueFromJob)
	s.restart(t)
	s.Submit(t, "second", gated)
	s.expectPlaced(t, "second", false, "ClusterQueue team-a has 0 of the 8 nvidia.com/gpu that the job needs, flavor h100")
	s.setQueue(t, "absent")
	s.Submit(t, "lost", unqueued)
	s.expectPlaced(t, "lost", false, fmt.Sprintf("the worker has no LocalQueue %s/absent", s.Namespace))
}

// TestBadWorkerQueue: the API server says what is wrong with a setting.
func TestBadWorkerQueue(t *testing.T) {
	s := newScene(t)
	for _, queue := range []v1alpha1.WorkerQueue{"none", "FromJob", "None", "team-a.gpus", "Team", "-a", "a/b", "fromjob "} {
		policy := &v1alpha1.DispatchPolicy{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "queue-"}, Spec: v1alpha1.DispatchPolicySpec{WorkerQueue: queue},
		}
		err := s.Hub.Admin.Create(t.Context(), policy, client.DryRunAll)
		bad := strings.ContainsAny(string(queue), " /") || queue == "Team" || queue == "-a"
		if bad != (err != nil) || bad && !strings.Contains(err.Error(), "workerQueue must be FromJob, None, or the name of a LocalQueue") {
			t.Errorf("%q: %v", queue, err)
		}
	}
}
