// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// kueueObjects are what Kueue v0.19 has after it has reserved quota for a TrainJob and a Job.
const kueueObjects = `
- kind: ClusterQueue
  metadata: {name: team-a, generation: 3, managedFields: [{manager: x}]}
  spec:
    cohortName: teams
    namespaceSelector: {}
    queueingStrategy: BestEffortFIFO
    stopPolicy: None
    resourceGroups:
    - coveredResources: [cpu, nvidia.com/gpu]
      flavors:
      - name: h100
        resources:
        - {name: cpu, nominalQuota: "10", borrowingLimit: 500m}
        - {name: nvidia.com/gpu, nominalQuota: 8, lendingLimit: 2}
  status: {conditions: [{type: Active, status: "True", reason: Ready, message: Can admit new workloads}]}
- kind: ClusterQueue
  metadata: {name: team-b}
  spec: {cohortName: teams, stopPolicy: Hold}
  status: {conditions: [{type: Active, status: "False", reason: Stopped, message: "Can't admit new workloads: is stopped."}]}
- kind: Cohort
  metadata: {name: teams}
  spec: {parentName: company, resourceGroups: [{coveredResources: [cpu], flavors: [{name: h100, resources: [{name: cpu, nominalQuota: 1}]}]}]}
- kind: LocalQueue
  metadata: {name: main, namespace: team}
  spec: {clusterQueue: team-a}
- kind: LocalQueue
  metadata: {name: held, namespace: team}
  spec: {clusterQueue: team-a, stopPolicy: HoldAndDrain}
- kind: ResourceFlavor
  metadata: {name: h100}
  spec:
    nodeLabels: {gpu: h100}
    nodeTaints: [{key: gpu, effect: NoSchedule}, {key: slow, effect: PreferNoSchedule}]
    tolerations: [{key: gpu, operator: Exists}]
- kind: Workload
  metadata:
    name: trainjob-big-1234
    namespace: team
    ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: big, uid: u, controller: true}]
  spec: {queueName: main, podSets: [{name: node, count: 4, template: {spec: {containers: []}}}]}
  status:
    conditions: [{type: QuotaReserved, status: "True"}]
    admission:
      clusterQueue: team-a
      podSetAssignments:
      - {name: node, count: 4, flavors: {cpu: h100, nvidia.com/gpu: h100}, resourceUsage: {cpu: 2, nvidia.com/gpu: 4}, topologyAssignment: {levels: [a]}}
- kind: Workload
  metadata:
    name: job-reclaims
    namespace: team
    ownerReferences: [{apiVersion: batch/v1, kind: Job, name: other, uid: v, controller: true}]
  spec: {queueName: main, podSets: [{name: main, count: 3}]}
  status:
    conditions: [{type: QuotaReserved, status: "True"}]
    reclaimablePods: [{name: main, count: 1}]
    admission:
      clusterQueue: team-a
      podSetAssignments: [{name: main, count: 3, flavors: {nvidia.com/gpu: h100}, resourceUsage: {nvidia.com/gpu: 3}}]
- kind: Workload
  metadata:
    name: trainjob-waits-1
    namespace: team
    ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: waits, uid: w, controller: true}]
  spec: {queueName: main, podSets: [{name: node, count: 1}]}
  status:
    conditions: [{type: QuotaReserved, status: "False", reason: Pending}]
    resourceRequests: [{name: init, resources: {cpu: 500m}}, {name: node, resources: {cpu: 2, nvidia.com/gpu: 0}}]
- kind: Workload
  metadata:
    name: trainjob-over-1
    namespace: team
    ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: over, uid: x, controller: true}]
  spec: {queueName: main, podSets: [{name: node, count: 1}]}
  status:
    conditions: [{type: QuotaReserved, status: "True"}, {type: Finished, status: "True"}]
    admission: {clusterQueue: team-a, podSetAssignments: [{name: node, count: 1, flavors: {cpu: h100}, resourceUsage: {cpu: 1}}]}
`

func kueueFixture(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var list []map[string]any
	must(t, yaml.Unmarshal([]byte(kueueObjects), &list))
	objects := make([]*unstructured.Unstructured, len(list))
	for i := range list {
		// As a client decodes them: with int64.
		data, err := json.Marshal(list[i])
		must(t, err)
		objects[i] = &unstructured.Unstructured{}
		must(t, objects[i].UnmarshalJSON(append([]byte(`{"apiVersion":"kueue.x-k8s.io/v1beta2",`), data[1:]...)))
	}
	return objects
}

func wantedQuota() *v1alpha1.KueueQuota {
	amounts := func(cpu, gpu int64) []v1alpha1.KueueAmount {
		return []v1alpha1.KueueAmount{{Flavor: "h100", Resource: "cpu", Amount: cpu}, {Flavor: "h100", Resource: "nvidia.com/gpu", Amount: gpu}}
	}
	fixture := []v1alpha1.KueueResourceGroup{{
		Resources: []corev1.ResourceName{"cpu", "nvidia.com/gpu"},
		Flavors: []v1alpha1.KueueFlavorQuotas{{Name: "h100", Quotas: []v1alpha1.KueueResourceQuota{
			{Resource: "cpu", Nominal: 10_000, BorrowingLimit: new(int64(500))}, {Resource: "nvidia.com/gpu", Nominal: 8, LendingLimit: new(int64(2))},
		}}},
	}}
	return &v1alpha1.KueueQuota{
		ClusterQueues: []v1alpha1.KueueClusterQueue{
			{Name: "team-a", Cohort: "teams", Groups: fixture, Used: amounts(2000, 6)},
			{Name: "team-b", Cohort: "teams", Stopped: "Can't admit new workloads: is stopped"},
		},
		Cohorts: []v1alpha1.KueueCohort{{Name: "teams", Parent: "company", Groups: []v1alpha1.KueueResourceGroup{{
			Resources: []corev1.ResourceName{"cpu"},
			Flavors:   []v1alpha1.KueueFlavorQuotas{{Name: "h100", Quotas: []v1alpha1.KueueResourceQuota{{Resource: "cpu", Nominal: 1000}}}},
		}}}},
		LocalQueues: []v1alpha1.KueueLocalQueue{
			{Namespace: "team", Name: "held", ClusterQueue: "team-a", Stopped: "its stopPolicy is HoldAndDrain"},
			{Namespace: "team", Name: "main", ClusterQueue: "team-a"},
		},
		Flavors: []v1alpha1.KueueFlavor{{
			Name: "h100", Labels: map[string]string{"gpu": "h100"}, Taints: []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}},
			Tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Exists"}},
		}},
		Workloads: []v1alpha1.KueueWorkload{
			{
				Namespace: "team", Job: "big", Queue: "main", ClusterQueue: "team-a", Used: amounts(2000, 4),
				Requests: []v1alpha1.KueueRequest{{Resource: "cpu", Amount: 2000}, {Resource: "nvidia.com/gpu", Amount: 4}},
			},
			{Namespace: "team", Job: "waits", Queue: "main", Requests: []v1alpha1.KueueRequest{{Resource: "cpu", Amount: 2500}}},
		},
	}
}

// TestQuotaOfObjects counts objects in any order, as they are and as the caches keep them, and forgets them again. A
// report has the same.
func TestQuotaOfObjects(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		tally := NewTally()
		tally.CountQuota()
		handler := tally.KueueHandler()
		objects := kueueFixture(t)
		r.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		for _, object := range objects {
			if r.IntN(2) == 0 {
				stripped, err := kueues.Strip(object)
				must(t, err)
				object = stripped.(*unstructured.Unstructured)
			}
			handler.OnAdd(object, true)
		}
		if tally.Snapshot().Quota != nil {
			t.Fatal("there is quota before everything is listed")
		}
		tally.QuotaListed()
		before := tally.Snapshot()
		if diff := cmp.Diff(wantedQuota(), before.Quota); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		for _, object := range objects { // What changes nothing wakes nobody.
			handler.OnUpdate(object, object)
		}
		if tally.Snapshot() != before {
			t.Fatal("an update without a change makes another snapshot")
		}
		report, err := NewReport(before, ReportLimit)
		must(t, err)
		if again, err := snapshotOf(report); err != nil || !cmp.Equal(again.Quota, before.Quota) {
			t.Fatalf("the report has other quota: %v", err)
		}
		for _, object := range objects {
			handler.OnDelete(object)
		}
		if diff := cmp.Diff(&v1alpha1.KueueQuota{}, tally.Snapshot().Quota); diff != "" {
			t.Fatalf("something is left (-want +got):\n%s", diff)
		}
	}
}

// TestWorkloadGivesBack: quota comes back when Kueue takes it back, and when the Workload has ended.
func TestWorkloadGivesBack(t *testing.T) {
	for _, condition := range []map[string]any{
		{"type": "QuotaReserved", "status": "False"}, {"type": "Finished", "status": "True"},
	} {
		tally := NewTally()
		tally.CountQuota()
		tally.QuotaListed()
		objects := kueueFixture(t)
		for _, object := range objects {
			tally.KueueHandler().OnAdd(object, true)
		}
		at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "trainjob-big-1234" })
		after := objects[at].DeepCopy()
		must(t, unstructured.SetNestedSlice(after.Object, []any{condition}, "status", "conditions"))
		tally.KueueHandler().OnUpdate(objects[at], after)
		want := []v1alpha1.KueueAmount{{Flavor: "h100", Resource: "nvidia.com/gpu", Amount: 2}}
		differ(t, want, tally.Snapshot().Quota.ClusterQueues[0].Used, fmt.Sprintf("%v", condition))
	}
}

// TestAbridgedQuota: without the Workloads, what is reserved stays reserved. Without quota, no queue is left.
func TestAbridgedQuota(t *testing.T) {
	s := &Snapshot{Quota: wantedQuota()}
	whole, err := json.Marshal(newReport(s))
	must(t, err)
	for limit, want := range map[int][]v1alpha1.Abridgement{
		len(whole) - 1: {v1alpha1.AbridgedFinishedGangs, v1alpha1.AbridgedNodeLabels, v1alpha1.AbridgedGangs, v1alpha1.AbridgedAmounts, v1alpha1.AbridgedWorkloads},
		500: {
			v1alpha1.AbridgedFinishedGangs, v1alpha1.AbridgedNodeLabels, v1alpha1.AbridgedGangs, v1alpha1.AbridgedAmounts, v1alpha1.AbridgedWorkloads,
			v1alpha1.AbridgedNodes, v1alpha1.AbridgedQuota,
		},
	} {
		report, err := NewReport(s, limit)
		must(t, err)
		differ(t, want, report.Abridged, fmt.Sprintf("limit %d", limit))
		if queues := len(report.Kueue.ClusterQueues); len(report.Kueue.Workloads) > 0 || (limit == 500) != (queues == 0) {
			t.Errorf("limit %d: %d queues, %d workloads", limit, queues, len(report.Kueue.Workloads))
		}
	}
}
