// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/check"
)

// reportedYard is a queue.Fleet of one worker with a CapacityReport.
type reportedYard struct {
	free *freeNodes
	jobs []*assignment
	at   dispatch.Worker
}

func newReportedYard(snapshot *capacity.Snapshot, kueue v1alpha1.KueueCapacity) *reportedYard {
	y := &reportedYard{jobs: []*assignment{
		{key: types.NamespacedName{Namespace: "team", Name: "runs"}, uid: "runs", worker: "east", podSets: gpuPods(2, 1)},
		{
			key: types.NamespacedName{Namespace: "team", Name: "queued"}, uid: "queued", worker: "east", podSets: gpuPods(1, 1),
			queue: types.NamespacedName{Namespace: "team", Name: "main"},
		},
	}}
	y.free = newFreeNodes(nil, snapshot, counts{kueue: kueue}, &charging{}, y.jobs)
	y.at = dispatch.Worker{
		Name: "east", Nodes: y.free.nodes, Allocatable: y.free.allocatable, Queued: y.free.queued, Assigned: len(y.jobs), Revision: 1,
	}
	return y
}

func (y *reportedYard) Workers() []dispatch.Worker { return []dispatch.Worker{y.at} }

func (y *reportedYard) Assign(job *queue.Job, _ dispatch.Decision) {
	y.at.Nodes = y.at.Nodes.Spread(job.PodSets).Charge(dispatch.QueueOf(&job.Job, ""), job.PodSets)
	y.at.Revision++
}

func (y *reportedYard) Empty(v1alpha1.ClusterName) *dispatch.Nodes { return y.free.withoutJobs() }
func (y *reportedYard) Occupancy(v1alpha1.ClusterName) dispatch.Occupancy {
	return &occupancy{jobs: y.jobs, nodes: y.free}
}
func (y *reportedYard) MayEvict(*queue.Job, v1alpha1.ClusterName) bool { return true }
func (y *reportedYard) Evict(dispatch.Preemption, *queue.Job) bool     { return true }
func (y *reportedYard) Evicting(types.UID) v1alpha1.ClusterName        { return "" }

func (y *reportedYard) Lose(panicked *dispatch.WorkerPanic) { panic(panicked.Value) }

func gpuPods(pods int32, gpus int64) []v1alpha1.PodSet {
	return []v1alpha1.PodSet{{Name: "node", Role: v1alpha1.RoleTrainer, Count: pods, Requests: corev1.ResourceList{
		"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI), "cpu": resource.MustParse("1"),
	}, NodeSelector: map[string]string{"zone": "a"}}}
}

// decideOn decides about jobs with the report of one worker, as the hub does: with the nodes, with the quota, and with
// both. It returns how many jobs were placed.
func decideOn(t *testing.T, report *v1alpha1.CapacityReport) (placed int) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	reported := capacity.NewReported(clock, func() {})
	reported.Handler().OnAdd(report, true)
	policies := []dispatch.Policy{{DispatchPolicy: &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority},
	}}}
	for _, kueue := range []v1alpha1.KueueCapacity{v1alpha1.KueueCapacityIgnore, v1alpha1.KueueCapacityQuota, v1alpha1.KueueCapacityQuotaAndNodes} {
		yard := newReportedYard(reported.Snapshot(), kueue)
		list := queue.New()
		for i, pods := range [][]v1alpha1.PodSet{gpuPods(1, 1), gpuPods(3, 8), gpuPods(1<<30, 1<<40)} {
			for _, labels := range []map[string]string{nil, {v1alpha1.LabelLocalQueue: "main"}} {
				name := string(rune('a' + i))
				if labels != nil {
					name += "-queued"
				}
				list.Enter(queue.Job{Class: name, Since: clock.Now(), Policies: policies, Job: dispatch.Job{
					UID: types.UID(name), Name: name, Namespace: "team", Labels: labels, Priority: 10, PodSets: pods,
				}})
			}
		}
		jobs := list.First(10)
		for range 3 {
			for _, o := range list.Pass(clock.Now(), yard) {
				if o.Decision.Cluster != "" {
					placed++
				}
			}
			jobs = list.First(10)
			clock.Step(24 * time.Hour) // Now workers are held for the jobs that wait.
		}
		for i := range jobs {
			list.Explain(&jobs[i], yard)
			list.Try(&jobs[i], yard, "")
			list.FitsEmpty(jobs[i].Key(), yard)
		}
	}
	return placed
}

// usualReport is a report with everything in it.
func usualReport() *v1alpha1.CapacityReport {
	amounts := []v1alpha1.KueueAmount{{Flavor: "h100", Resource: "nvidia.com/gpu", Amount: 2}}
	group := func(nominal int64) []v1alpha1.KueueResourceGroup {
		return []v1alpha1.KueueResourceGroup{{
			Resources: []corev1.ResourceName{"cpu", "nvidia.com/gpu"},
			Flavors: []v1alpha1.KueueFlavorQuotas{{Name: "h100", Quotas: []v1alpha1.KueueResourceQuota{
				{Resource: "cpu", Nominal: 64_000}, {Resource: "nvidia.com/gpu", Nominal: nominal, LendingLimit: ptr.To[int64](3)},
			}}},
		}}
	}
	return &v1alpha1.CapacityReport{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CapacityReportName},
		Resources:  []corev1.ResourceName{"cpu", "nvidia.com/gpu"}, Labels: []string{"zone=a"},
		NodeGroups: []v1alpha1.ReportedNodeGroup{{
			Labels: []int32{0}, Schedulable: true, Allocatable: v1alpha1.Amounts{32_000, 8},
			Rows: []v1alpha1.ReportedNodes{
				{Nodes: 2, Used: v1alpha1.Amounts{0, 0}},
				{Nodes: 1, Used: v1alpha1.Amounts{1000, 2}, Gangs: []v1alpha1.ReportedUse{{Gang: 0, Used: v1alpha1.Amounts{1000, 2}}}},
			},
		}},
		Gangs: []v1alpha1.ReportedGang{{Namespace: "team", Name: "runs", Pods: []v1alpha1.ReportedPods{{Job: "node", Bound: 1, Succeeded: 1}}}},
		Kueue: &v1alpha1.KueueQuota{
			ClusterQueues: []v1alpha1.KueueClusterQueue{{Name: "team", Cohort: "leaf", Groups: group(8), Used: amounts}},
			Cohorts:       []v1alpha1.KueueCohort{{Name: "leaf", Parent: "root", Groups: group(4)}, {Name: "root", Groups: group(16)}},
			LocalQueues:   []v1alpha1.KueueLocalQueue{{Namespace: "team", Name: "main", ClusterQueue: "team"}},
			Flavors: []v1alpha1.KueueFlavor{{Name: "h100", Labels: map[string]string{"zone": "a"}, Taints: []corev1.Taint{
				{Key: "gpu", Effect: corev1.TaintEffectNoSchedule},
			}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}},
			Workloads: []v1alpha1.KueueWorkload{{Namespace: "team", Job: "runs", Queue: "main", ClusterQueue: "team", Used: amounts}},
		},
	}
}

// FuzzReport looks for CapacityReports with which a decision panics or does not return. A worker writes its report, and
// the decider of all workers reads it.
func FuzzReport(f *testing.F) {
	usual, err := json.Marshal(usualReport())
	check.Must(f, err)
	f.Add(usual)
	for _, seed := range hostileReports {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		report := &v1alpha1.CapacityReport{}
		if json.Unmarshal(data, report) != nil {
			t.Skip("it is no report")
		}
		report.Name = v1alpha1.CapacityReportName
		decideOn(t, report)
	})
}

// hostileReports are the first inputs of FuzzReport.
var hostileReports = []string{
	`{}`,
	`{"kueue":{"cohorts":[{"name":"","parent":"x"}]}}`,
	`{"kueue":{"clusterQueues":[{"name":"q","cohort":""},{"name":"q","cohort":"c"}],"cohorts":[{"name":"c","parent":"c"}]}}`,
	`{"kueue":{"clusterQueues":[{"name":"q","cohort":"c"}],"cohorts":[{"name":"c","parent":"d"},{"name":"d","parent":"c"}],` +
		`"localQueues":[{"namespace":"team","name":"main","clusterQueue":"q"}]}}`,
	`{"kueue":{"clusterQueues":[{"name":"q","groups":[{"resources":["cpu","cpu",""],"flavors":[{"name":""},{"name":"f","quotas":[` +
		`{"resource":"cpu","nominal":-9223372036854775808,"borrowingLimit":9223372036854775807,"lendingLimit":-1}]}]}],` +
		`"used":[{"flavor":"f","resource":"cpu","amount":-1}]}],"localQueues":[{"namespace":"team","name":"main","clusterQueue":"q"}]}}`,
	`{"kueue":{"workloads":[{"namespace":"team","job":"runs","clusterQueue":"gone","used":[{"flavor":"f","resource":"cpu","amount":9223372036854775807}]}]}}`,
	`{"resources":["cpu","cpu"],"labels":["","=","a"],"nodeGroups":[{"labels":[0,-1,9],"schedulable":true,"allocatable":[1,2],"rows":[` +
		`{"nodes":2147483647,"used":[9223372036854775807,-9223372036854775808]}]}]}`,
	`{"resources":["nvidia.com/gpu","pods"],"nodeGroups":[{"schedulable":true,"allocatable":[9223372036854775807,0],"rows":[` +
		`{"nodes":2147483647,"used":[0,9223372036854775807],"gangs":[{"gang":0,"used":[9223372036854775807,1]},{"gang":0,"used":[1,1]}]}]}],` +
		`"gangs":[{"namespace":"team","name":"runs","pods":[{"job":"node","bound":-2147483648,"succeeded":2147483647}]}]}`,
	`{"nodeGroups":[{"schedulable":true,"allocatable":[],"rows":[{"nodes":0,"used":[]}]},{"allocatable":[1],"rows":null}]}`,
}

// TestUsualReport: the jobs of FuzzReport are placed with a report that makes sense. So the fuzzer tries something.
func TestUsualReport(t *testing.T) {
	if placed := decideOn(t, usualReport()); placed < 6 {
		t.Errorf("%d jobs are placed, want at least two for each way to count", placed)
	}
}
