// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/fleet"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// list makes a list of pairs: list("cpu", "4", "memory", "1Gi").
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func gpus(each, allocatable int64, count int32) v1alpha1.FreeNodes {
	return v1alpha1.FreeNodes{GPUs: each, Nodes: count, Free: list("cpu", fmt.Sprint(2*allocatable+each), "memory", "16Gi", string(gpu), fmt.Sprint(each))}
}

// group returns a group of nodes with this number of GPUs each.
func group(product string, allocatable int64, free ...v1alpha1.FreeNodes) v1alpha1.NodeGroup {
	g := v1alpha1.NodeGroup{
		Product: product, Resource: gpu, Free: free, Labels: map[string]string{"product": product},
		Allocatable: list("cpu", "64", "memory", "64Gi", string(gpu), fmt.Sprint(allocatable)),
	}
	for _, f := range free {
		g.Nodes += f.Nodes
	}
	return g
}

func ready(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Status: status, Reason: reason, Message: message}}
}

func worker(name string, groups ...v1alpha1.NodeGroup) v1alpha1.WorkerCluster {
	return v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1alpha1.WorkerClusterStatus{Conditions: ready(metav1.ConditionTrue, "Connected", ""), NodeGroups: groups, Jobs: 2},
	}
}

func gang(pods int32, requests ...string) []v1alpha1.PodSet {
	return []v1alpha1.PodSet{{Name: "node", Count: pods, Requests: list(requests...)}}
}

// nodePool are nodes with eight GPUs that a worker can add.
func nodePool(name string, maximum int32) v1alpha1.ExpandableNodes {
	return v1alpha1.ExpandableNodes{
		Name: name, Selector: map[string]string{"pool": name}, Maximum: maximum,
		Allocatable: v1alpha1.NodeResources{gpu: resource.MustParse("8")},
	}
}

func TestTable(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	east := worker("east", group("L4", 1, gpus(1, 1, 4)), group("H100", 8, gpus(8, 8, 3), gpus(4, 8, 2), gpus(0, 8, 1)),
		v1alpha1.NodeGroup{Nodes: 3, Allocatable: list("cpu", "8"), Free: []v1alpha1.FreeNodes{{Nodes: 3, Free: list("cpu", "8")}}})
	east.CreationTimestamp, east.Status.KubernetesVersion, east.Labels = ago(48*time.Hour), "v1.36.3", map[string]string{"region": "eu"}
	east.Spec.Price = v1alpha1.Prices{gpu: resource.MustParse("2.5")}
	east.Spec.Expandable = []v1alpha1.ExpandableNodes{nodePool("h100", 8), nodePool("full", 1), nodePool("l4", 2)}
	east.Status.Expandable = []v1alpha1.ExpandableStatus{{Name: "h100", Nodes: 2}, {Name: "full", Nodes: 1}}
	east.Status.NodeGroups[0].Taints = []corev1.Taint{{Key: "inference", Effect: corev1.TaintEffectNoSchedule}}
	east.Spec.Capacity = v1alpha1.CapacityFromReport
	east.Status.Conditions = append(east.Status.Conditions, metav1.Condition{Type: v1alpha1.WorkerClusterAgentReady, Status: metav1.ConditionTrue})
	full := worker("full", group("H100", 8, gpus(7, 8, 9)))
	full.Spec.Unschedulable = true
	lost := worker("lost", group("A100", 8, gpus(8, 8, 1)))
	lost.Status.Conditions = append(ready(metav1.ConditionFalse, "Unreachable", "i/o timeout"),
		metav1.Condition{Type: v1alpha1.WorkerClusterAgentReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAgentSilent})
	seen := ago(5 * time.Minute)
	lost.Status.LastSeenTime = &seen
	fresh := v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	divided := v1alpha1.NodeGroup{
		Product: "H100", Resource: gpu, Unit: "Device", Nodes: 1, Labels: map[string]string{"nvidia.com/gpu.product": "H100"},
		Allocatable: list(string(gpu), "4", "nvidia.com/mig-1g.10gb", "7", "nvidia.com/mig-3g.40gb", "6", "nvidia.com/gpucores", "400"),
		Free:        []v1alpha1.FreeNodes{{GPUs: 1, Nodes: 1, Free: list(string(gpu), "1", "nvidia.com/mig-1g.10gb", "7", "nvidia.com/mig-3g.40gb", "2")}},
	}
	tpus := worker("tpus", divided, v1alpha1.NodeGroup{
		Product: "tpu-v6e-slice", Resource: "google.com/tpu", Unit: "Device", Nodes: 2, Allocatable: list("google.com/tpu", "4"),
		Free: []v1alpha1.FreeNodes{{GPUs: 4, Nodes: 2, Free: list("google.com/tpu", "4")}},
	}, v1alpha1.NodeGroup{
		Resource: "example.com/npu-2c", Unit: "Share", Nodes: 1, Allocatable: list("example.com/npu-2c", "8"), Free: []v1alpha1.FreeNodes{{GPUs: 3, Nodes: 1}},
	})
	mixed := worker("mixed", group("", 4, gpus(4, 4, 4)), group("", 8, gpus(8, 8, 2)))
	tests := map[string]struct {
		reason string
		wide   bool
		of     []v1alpha1.WorkerCluster
		want   string
	}{
		"Products": {
			reason: "a row for each product, the most GPUs first; nodes without GPUs have none", of: []v1alpha1.WorkerCluster{east},
			want: `
NAME|READY|GPU|FREE/TOTAL|LARGEST-GANG|JOBS|AGENT|VERSION|AGE
east|True|H100|32/48|3x8|2|True|v1.36.3|2d
east|True|L4|4/4|4x1|2|True|v1.36.3|2d`,
		},
		"NoWholeNode": {
			reason: "free GPUs on nodes in use are no gang of whole nodes", of: []v1alpha1.WorkerCluster{full},
			want: `
NAME|READY|GPU|FREE/TOTAL|LARGEST-GANG|JOBS|AGENT|VERSION|AGE
full|True,Cordoned|H100|63/72|0|2|<unknown>|<unknown>|<unknown>`,
		},
		"Stale": {
			reason: "what is not seen any more is marked as such", of: []v1alpha1.WorkerCluster{lost},
			want: `
NAME|READY|GPU|FREE/TOTAL|LARGEST-GANG|JOBS|AGENT|VERSION|AGE
lost|Unreachable (seen 5m ago)|A100|8/8|1x8|2|Silent|<unknown>|<unknown>`,
		},
		"Unseen": {
			reason: "a worker of which nothing is known", of: []v1alpha1.WorkerCluster{fresh},
			want: `
NAME|READY|GPU|FREE/TOTAL|LARGEST-GANG|JOBS|AGENT|VERSION|AGE
new|NotSeen|<none>|<none>|<none>|0|<unknown>|<unknown>|<unknown>`,
		},
		"EqualGangs": {
			reason: "of two gangs with as many GPUs the one on fewer nodes is told; without a product the resource stands for it", of: []v1alpha1.WorkerCluster{mixed},
			want: `
NAME|READY|GPU|FREE/TOTAL|LARGEST-GANG|JOBS|AGENT|VERSION|AGE
mixed|True|nvidia.com/gpu|32/32|2x8|2|<unknown>|<unknown>|<unknown>`,
		},
		"Devices": {
			reason: "of every vendor; shares of devices come after whole ones, each kind apart; an admin may have added a resource",
			of:     []v1alpha1.WorkerCluster{tpus},
			want: `
NAME|READY|GPU|FREE/TOTAL|LARGEST-GANG|JOBS|AGENT|VERSION|AGE
tpus|True|tpu-v6e-slice|8/8|2x4|2|<unknown>|<unknown>|<unknown>
tpus|True|H100|1/4|0|2|<unknown>|<unknown>|<unknown>
tpus|True|example.com/npu-2c|3/8|0|2|<unknown>|<unknown>|<unknown>
tpus|True|H100 (nvidia.com/mig-1g.10gb)|7/7|1x7|2|<unknown>|<unknown>|<unknown>
tpus|True|H100 (nvidia.com/mig-3g.40gb)|2/6|0|2|<unknown>|<unknown>|<unknown>`,
		},
		"Wide": {
			reason: "cpu, memory and taints are those of the product's nodes", wide: true, of: []v1alpha1.WorkerCluster{east, lost},
			want: `
NAME|READY|GPU|FREE/TOTAL|LARGEST-GANG|JOBS|AGENT|VERSION|AGE|CPU-FREE|MEMORY-FREE|SOURCE|PRICE|CAN-ADD|LABELS|TAINTS|MESSAGE
east|True|H100|32/48|3x8|2|True|v1.36.3|2d|128|96Gi|Report|nvidia.com/gpu=2.5|h100=6,l4=2|region=eu|<none>
east|True|L4|4/4|4x1|2|True|v1.36.3|2d|12|64Gi|Report|nvidia.com/gpu=2.5|h100=6,l4=2|region=eu|inference:NoSchedule
lost|Unreachable (seen 5m ago)|A100|8/8|1x8|2|Silent|<unknown>|<unknown>|24|16Gi|Pods|<none>|<none>|<none>|<none>|i/o timeout`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			check.Diff(t, strings.TrimPrefix(tc.want, "\n"), printed(t, fleet.Table(tc.of, now), tc.wide), tc.reason)
		})
	}
	check.Equal(t, "9/12", fleet.GPUs(&tpus), "whole devices")
}

var gap = regexp.MustCompile(` {2,}`)

// printed returns a table with | between its columns.
func printed(t *testing.T, table *metav1.Table, wide bool) string {
	t.Helper()
	var b bytes.Buffer
	check.Must(t, printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, &b))
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, gap.ReplaceAllString(strings.TrimSpace(line), "|"))
	}
	return strings.Join(lines, "\n")
}

func TestWorkers(t *testing.T) {
	placed := func(phase v1alpha1.DispatchPhase) v1alpha1.Dispatch {
		return v1alpha1.Dispatch{
			Spec:   v1alpha1.DispatchSpec{Cluster: "east", Attempt: 1, PodSets: gang(2, string(gpu), "8")},
			Status: v1alpha1.DispatchStatus{Phase: phase},
		}
	}
	refused := placed(v1alpha1.PhasePending)
	refused.Status.Attempt = 1
	refused.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionFalse}}
	unknown := group("H100", 8, v1alpha1.FreeNodes{GPUs: 8, Nodes: 3})
	lost := worker("east", unknown)
	lost.Status.Conditions = ready(metav1.ConditionFalse, "Unreachable", "i/o timeout")
	expandable := worker("east", group("H100", 8, gpus(8, 8, 3)))
	expandable.Spec.Expandable = []v1alpha1.ExpandableNodes{nodePool("h100", 2)}
	waiting := placed(v1alpha1.PhaseStarting)
	waiting.Spec.AddedNodes = 1
	type seen struct {
		Free             int64
		Assigned, Queued int
		NotReady         string
		Notes            []string
	}
	const inexact = `the status of WorkerCluster "east" does not say what its nodes have free besides GPUs: everything else counts as free`
	tests := map[string]struct {
		reason     string
		cluster    v1alpha1.WorkerCluster
		dispatches []v1alpha1.Dispatch
		want       seen
	}{
		"Idle":    {reason: "what the status says", cluster: worker("east", group("H100", 8, gpus(8, 8, 3))), want: seen{Free: 24, Assigned: 2}},
		"Pending": {reason: "a job that is placed and not seen there holds its room", cluster: worker("east", group("H100", 8, gpus(8, 8, 3))), dispatches: []v1alpha1.Dispatch{placed(v1alpha1.PhasePending)}, want: seen{Free: 8, Assigned: 2, Queued: 1}},
		"Running": {reason: "the pods of one that runs are in the status", cluster: worker("east", group("H100", 8, gpus(8, 8, 3))), dispatches: []v1alpha1.Dispatch{placed(v1alpha1.PhaseRunning)}, want: seen{Free: 24, Assigned: 2}},
		"Refused": {reason: "a refused one holds nothing", cluster: worker("east", group("H100", 8, gpus(8, 8, 3))), dispatches: []v1alpha1.Dispatch{refused}, want: seen{Free: 24, Assigned: 2}},
		"Inexact": {reason: "a status that knows GPUs only is used, and it is said", cluster: worker("east", unknown), want: seen{Free: 24, Assigned: 2, Notes: []string{inexact}}},
		"CanAdd":  {reason: "nodes that the worker can add are there too", cluster: expandable, want: seen{Free: 40, Assigned: 2}},
		"Adds":    {reason: "a job that waits for nodes holds them", cluster: expandable, dispatches: []v1alpha1.Dispatch{waiting}, want: seen{Free: 24, Assigned: 2, Queued: 1}},
		"Starts":  {reason: "the pods of one that waits for none are in the status", cluster: expandable, dispatches: []v1alpha1.Dispatch{placed(v1alpha1.PhaseStarting)}, want: seen{Free: 40, Assigned: 2}},
		"Lost":    {reason: "of a worker that takes no jobs it is not said", cluster: lost, want: seen{Free: 24, Assigned: 2, NotReady: "Unreachable: i/o timeout"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			workers, notes := fleet.Workers([]v1alpha1.WorkerCluster{tc.cluster}, tc.dispatches)
			w := workers[0]
			got := seen{Free: w.Nodes.Free(gpu), Assigned: w.Assigned, Queued: w.Queued, NotReady: w.NotReady, Notes: notes}
			check.Diff(t, tc.want, got, tc.reason)
			check.Equal(t, 24, w.Allocatable[gpu], "%s: allocatable", tc.reason)
		})
	}
}

// TestStatusDecidesAsItsNodes checks that decisions from a status equal decisions from its nodes.
func TestStatusDecidesAsItsNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	placed := 0
	for range 300 {
		var nodes, statuses []dispatch.Worker
		for w := range 1 + random.IntN(4) {
			name := v1alpha1.ClusterName(fmt.Sprintf("worker-%d", w))
			groups := randomGroups(random)
			exactly := dispatch.Worker{Name: name, Nodes: dispatch.NewNodes(groups), Allocatable: dispatch.Resources{gpu: 64, "cpu": 64000}}
			status := exactly
			var exact bool
			if status.Nodes, exact = fleet.Nodes(statusOf(exactly.Nodes.Groups())); !exact {
				t.Fatal("the status is said to be inexact")
			}
			nodes, statuses = append(nodes, exactly), append(statuses, status)
		}
		job := dispatch.Job{UID: "uid", PodSets: gang(1+random.Int32N(4), string(gpu), fmt.Sprint(1+random.IntN(8)), "cpu", fmt.Sprintf("%dm", 100+random.IntN(8000)))}
		if random.IntN(2) == 0 {
			job.PodSets[0].NodeSelector = map[string]string{"zone": fmt.Sprint(random.IntN(2))}
		}
		if random.IntN(2) == 0 {
			job.PodSets[0].Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		}
		want, got := dispatch.Decide(job, nil, nodes), dispatch.Decide(job, nil, statuses)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("decision (-nodes +status):\n%s", diff)
		}
		if diff := cmp.Diff(dispatch.Explain(job, nil, nodes), dispatch.Explain(job, nil, statuses)); diff != "" {
			t.Fatalf("explanation (-nodes +status):\n%s", diff)
		}
		if got.Cluster != "" {
			placed++
		}
	}
	if placed < 50 || placed > 250 {
		t.Errorf("%d of 300 jobs were placed, which tests little", placed)
	}
}

func randomGroups(random *rand.Rand) []dispatch.NodeGroup {
	var groups []dispatch.NodeGroup
	for range 1 + random.IntN(5) {
		g := dispatch.NodeGroup{
			Labels: map[string]string{"zone": fmt.Sprint(random.IntN(2))}, Count: 1 + random.IntN(2),
			Free: dispatch.Resources{gpu: random.Int64N(9), "cpu": random.Int64N(20000), "memory": random.Int64N(1 << 40), "pods": random.Int64N(110)},
		}
		if random.IntN(3) == 0 {
			g.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
		}
		groups = append(groups, g)
	}
	return groups
}

// statusOf writes nodes as the status of a WorkerCluster does.
func statusOf(nodes []dispatch.NodeGroup) []v1alpha1.NodeGroup {
	var groups []v1alpha1.NodeGroup
	for _, n := range nodes {
		free := v1alpha1.FreeNodes{GPUs: n.Free[gpu], Nodes: int32(n.Count), Free: corev1.ResourceList{}}
		for name, amount := range n.Free {
			if free.Free[name] = *resource.NewQuantity(amount, resource.DecimalSI); name == "cpu" {
				free.Free[name] = *resource.NewMilliQuantity(amount, resource.DecimalSI)
			}
		}
		at := slices.IndexFunc(groups, func(g v1alpha1.NodeGroup) bool { return cmp.Equal(g.Labels, n.Labels) && cmp.Equal(g.Taints, n.Taints) })
		if at < 0 {
			at, groups = len(groups), append(groups, v1alpha1.NodeGroup{Resource: gpu, Labels: n.Labels, Taints: n.Taints})
		}
		groups[at].Nodes += free.Nodes
		groups[at].Free = append(groups[at].Free, free)
	}
	return groups
}

// The simulation and the manager say the same of a worker that is being drained.
func TestDrainedWorker(t *testing.T) {
	cluster := worker("east", group("H100", 8, gpus(8, 8, 3)))
	cluster.Spec.Drain, cluster.Spec.Kueue.WorkerQueue = true, "gpus"
	workers, _ := fleet.Workers([]v1alpha1.WorkerCluster{cluster}, nil)
	if w := workers[0]; !w.Cordoned || !w.Draining || w.WorkerQueue != "gpus" {
		t.Errorf("the worker is cordoned: %t, draining: %t, and has the queue %q", w.Cordoned, w.Draining, w.WorkerQueue)
	}
}

// A simulation leaves out of a job's demand what the manager leaves out, also after another job was placed.
func TestIgnoredResources(t *testing.T) {
	east, west := worker("east", group("H100", 8, gpus(8, 8, 3))), worker("west", group("H100", 8, gpus(8, 8, 3)))
	east.Spec.IgnoredResources = []v1alpha1.ExtendedResourceName{"nvidia.com/gpumem"}
	workers, _ := fleet.Workers([]v1alpha1.WorkerCluster{east, west}, nil)
	job := dispatch.Job{UID: "uid", PodSets: gang(2, string(gpu), "8", "nvidia.com/gpumem", "8000")}
	check.Equal(t, "east", dispatch.Decide(job, nil, workers).Cluster, "the worker of the first job")
	fleet.Place(&workers[0], job.PodSets)
	lines := dispatch.Explain(job, nil, workers)
	if !strings.HasPrefix(lines[0].Message, "lacks 8 nvidia.com/gpu") || !strings.Contains(lines[1].Message, "spec.ignoredResources") {
		t.Errorf("the second job waits because %+v", lines)
	}
}

func paused(message string) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.WorkerClusterFailoverPaused, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonManyWorkersLost, Message: message,
	}
}

func TestStatesOfAWorker(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	seen := metav1.NewTime(now.Add(-7 * time.Minute))
	tests := map[string]struct {
		reason string
		edit   func(*v1alpha1.WorkerCluster)
		want   string
		notes  []string
	}{
		"Ready":           {reason: "all is well", edit: func(*v1alpha1.WorkerCluster) {}, want: "True"},
		"Cordoned":        {reason: "no new jobs", edit: func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = true }, want: "True,Cordoned"},
		"Draining":        {reason: "the jobs leave", edit: func(w *v1alpha1.WorkerCluster) { w.Spec.Drain = true }, want: "True,Draining"},
		"CordonedDrained": {reason: "a drain is a cordon too", edit: func(w *v1alpha1.WorkerCluster) { w.Spec.Drain, w.Spec.Unschedulable = true, true }, want: "True,Draining"},
		"Paused": {
			reason: "why nothing is moved off a lost worker, and since when it is lost",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.Conditions = append(ready(metav1.ConditionFalse, "Unreachable", ""), paused("3 of 4 workers were lost"))
				w.Status.LastSeenTime = &seen
			},
			want: "Unreachable,FailoverPaused (seen 7m ago)", notes: []string{`the jobs of worker "w" are not moved: 3 of 4 workers were lost`},
		},
		"Forgotten": {
			reason: "the hub does not wait for this cluster",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.ClusterID, w.Annotations = "id", map[string]string{v1alpha1.AnnotationForget: "id"}
			},
			want: "True,Forgotten",
		},
		"OtherForgotten": {
			reason: "the cluster that the name led to before was forgotten",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.ClusterID, w.Annotations = "new", map[string]string{v1alpha1.AnnotationForget: "old"}
			},
			want: "True",
		},
		"Skew": {
			reason: "it gets jobs all the same",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.Conditions = append(ready(metav1.ConditionTrue, "Connected", ""), metav1.Condition{
					Type: v1alpha1.WorkerClusterSkewUnsupported, Status: metav1.ConditionTrue, Message: "upgrade the worker",
				})
			},
			want: "True", notes: []string{`worker "w": upgrade the worker`},
		},
		"Sweep": {
			reason: "copies stay there that nobody wants",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.Conditions = append(ready(metav1.ConditionTrue, "Connected", ""), metav1.Condition{
					Type: v1alpha1.WorkerClusterSweepRefused, Status: metav1.ConditionTrue, Message: "allow the hub to delete TrainJobs",
				})
			},
			want: "True", notes: []string{`worker "w": allow the hub to delete TrainJobs`},
		},
		"RightsMissing": {
			reason: "it gets jobs all the same",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.Conditions = ready(metav1.ConditionTrue, "Connected", v1alpha1.MessageConnected+"; it does not let the hub read logs")
			},
			want: "True", notes: []string{`worker "w": it does not let the hub read logs`},
		},
		"NothingMissing": {
			reason: "there is nothing to do",
			edit: func(w *v1alpha1.WorkerCluster) {
				w.Status.Conditions = ready(metav1.ConditionTrue, "Connected", v1alpha1.MessageConnected)
			},
			want: "True",
		},
		"Runtimes": {
			reason: "jobs run something else there",
			edit:   func(w *v1alpha1.WorkerCluster) { w.Status.Runtimes = make([]v1alpha1.WorkerRuntime, 3) },
			want:   "True",
			notes:  []string{`worker "w" has runtimes that are not the hub's of the same name: kubectl trainyard runtimes --diff prints 3 of them`},
		},
		"UnknownCopies": {
			reason: "somebody has to decide",
			edit:   func(w *v1alpha1.WorkerCluster) { w.Status.UnknownCopies = make([]v1alpha1.UnknownCopy, 2) },
			want:   "True", notes: []string{`worker "w" has copies that the hub has no record of: kubectl trainyard adopt w prints 2 of them`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := worker("w")
			tc.edit(&w)
			check.Diff(t, tc.want, fleet.Ready(&w, now), fmt.Sprintf("%s: Ready()", tc.reason))
			check.Diff(t, tc.notes, fleet.Notes([]v1alpha1.WorkerCluster{w}), fmt.Sprintf("%s: Notes()", tc.reason))
		})
	}
}
