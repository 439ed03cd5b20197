// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// shape says what randomSnapshot makes.
type shape struct {
	nodes, gangs int
	// named says that each node has a label of its own.
	named bool
}

// randomSnapshot returns what a tally counts for random nodes and pods.
func randomSnapshot(random *rand.Rand, s shape) *Snapshot {
	tally := NewTally()
	phases := []corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
	for n := range s.nodes {
		name := fmt.Sprint("n", n)
		node := newNode(name, list("cpu", fmt.Sprint(8*(1+random.IntN(2))), "pods", "110"), corev1.ConditionTrue)
		node.Labels = map[string]string{corev1.LabelHostname: name, "zone": fmt.Sprint(random.IntN(2))}
		if s.named {
			node.Labels["instance"] = fmt.Sprint("i-", n)
		}
		if random.IntN(3) == 0 {
			node.Status.Allocatable = list("cpu", "96", "nvidia.com/gpu", "8", "pods", "110")
			node.Labels["gpu"] = "yes=really"
		}
		if random.IntN(4) == 0 {
			node.Spec.Taints = []corev1.Taint{{Key: "t", Value: fmt.Sprint(random.IntN(2)), Effect: effects[random.IntN(3)]}}
		}
		node.Spec.Unschedulable = random.IntN(6) == 0
		tally.setNode(node)
		for p := range random.IntN(4) {
			requests := list("cpu", fmt.Sprint(500*random.IntN(5), "m"), "nvidia.com/gpu", fmt.Sprint(random.IntN(2)))
			pod := newPod(fmt.Sprint(name, "-", p), name, phases[random.IntN(len(phases))], requests)
			if s.gangs > 0 && random.IntN(3) > 0 {
				pod.Labels = map[string]string{jobsetv1alpha2.JobSetNameKey: fmt.Sprint("gang", random.IntN(s.gangs)), jobsetv1alpha2.ReplicatedJobNameKey: "node"}
			}
			tally.setPod(pod)
		}
	}
	return tally.Snapshot()
}

// alike counts equal nodes, without their names.
func alike(nodes []*NodeState) map[string]int {
	counts := map[string]int{}
	for _, node := range nodes {
		same := *node
		same.Name, same.Count, same.Taints = "", 0, HardTaints(node.Taints)
		same.Labels = maps.Clone(node.Labels)
		delete(same.Labels, corev1.LabelHostname)
		counts[fmt.Sprintf("%+v", same)] += node.Count
	}
	return counts
}

// TestReportSaysAll checks that a report, written to JSON and read again, has the same content.
func TestReportSaysAll(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		want := randomSnapshot(random, shape{nodes: random.IntN(30), gangs: random.IntN(6), named: seed%2 == 0})
		report, err := NewReport(want, ReportLimit)
		must(t, err)
		data, err := json.Marshal(report)
		must(t, err)
		read := &v1alpha1.CapacityReport{}
		must(t, json.Unmarshal(data, read))
		got, err := snapshotOf(read)
		must(t, err)
		if diff := cmp.Diff(alike(want.Nodes), alike(got.Nodes)); diff != "" {
			t.Fatalf("seed %d: nodes: -want +got:\n%s", seed, diff)
		}
		if diff := cmp.Diff(want.Gangs, got.Gangs); diff != "" {
			t.Fatalf("seed %d: gangs: -want +got:\n%s", seed, diff)
		}
		twice := &Snapshot{Nodes: slices.Concat(got.Nodes, got.Nodes), Gangs: got.Gangs}
		if doubled, err := snapshotOf(newReport(twice)); err != nil || cmp.Diff(alike(twice.Nodes), alike(doubled.Nodes)) != "" {
			t.Fatalf("seed %d: twice as many: %v\n%s", seed, err, cmp.Diff(alike(twice.Nodes), alike(doubled.Nodes)))
		}
		// The report does not depend on the order of nodes, nor on whether equal nodes are one already.
		slices.Reverse(want.Nodes)
		for _, again := range []*Snapshot{want, got} {
			if same, err := NewReport(again, ReportLimit); err != nil || cmp.Diff(report, same) != "" {
				t.Fatalf("seed %d: again: %v\n%s", seed, err, cmp.Diff(report, same))
			}
		}
	}
}

// TestReportNeverPromisesMore checks that no abridgement makes nodes more free, gangs smaller, or pools emptier.
func TestReportNeverPromisesMore(t *testing.T) {
	seen := map[v1alpha1.Abridgement]bool{}
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		full := randomSnapshot(random, shape{nodes: 40, gangs: 8, named: true})
		full.Quota = wantedQuota()
		whole, err := NewReport(full, ReportLimit)
		must(t, err)
		data, _ := json.Marshal(whole)
		limit := random.IntN(len(data))
		report, err := NewReport(full, limit)
		must(t, err)
		for _, name := range report.Abridged {
			seen[name] = true
		}
		abridged, err := snapshotOf(report)
		must(t, err)
		data, _ = json.Marshal(report)
		if all := len(abridgements) - 1; len(data) > limit && len(report.Abridged) < all {
			t.Fatalf("seed %d: %d bytes of %d, with %v", seed, len(data), limit, report.Abridged)
		}
		for key, jobs := range abridged.Gangs {
			if diff := cmp.Diff(full.Gangs[key], jobs); diff != "" {
				t.Fatalf("seed %d: gang %s: -full +abridged:\n%s", seed, key, diff)
			}
		}
		checkPromise(t, full.Nodes, abridged.Nodes)
		for key, value := range full.Nodes[0].Labels {
			item := &v1alpha1.ExpandableNodes{Selector: map[string]string{key: value}, Maximum: int32(len(full.Nodes))}
			if all, few := full.Recognized(item), abridged.Recognized(item); all < 1 || few < all {
				t.Fatalf("seed %d: %d nodes have label %s=%s, and %d of them are left with %v", seed, all, key, value, few, report.Abridged)
			}
		}
	}
	for _, step := range abridgements {
		if step.name != "" && !seen[step.name] {
			t.Errorf("%s was never needed: the test is too easy", step.name)
		}
	}
}

// checkPromise matches each abridged node with its own full node that has at least as much free.
func checkPromise(t *testing.T, full, abridged []*NodeState) {
	t.Helper()
	free := slices.Clone(full)
	// The matching is greedy: each node takes the fullest full node that still fits.
	for _, node := range abridged {
		for range node.Count {
			at := bestMatch(free, node)
			if at < 0 {
				t.Fatalf("no full node is as good as %+v", node)
			}
			free = slices.Delete(free, at, at+1)
		}
	}
}

// bestMatch returns the node with the most used among the nodes that have enough free in each resource.
func bestMatch(nodes []*NodeState, wanted *NodeState) int {
	best, bestUsed := -1, int64(-1)
	for i, node := range nodes {
		if node.Schedulable != wanted.Schedulable || !maps.Equal(node.Allocatable, wanted.Allocatable) ||
			cmp.Diff(HardTaints(node.Taints), wanted.Taints) != "" || !sameOrFewerLabels(node.Labels, wanted.Labels) {
			continue
		}
		used := int64(0)
		for name, amount := range node.Used {
			used += amount
			if amount > wanted.Used[name] {
				used = -1
				break
			}
		}
		if used > bestUsed {
			best, bestUsed = i, used
		}
	}
	return best
}

func sameOrFewerLabels(full, abridged map[string]string) bool {
	for key, value := range abridged {
		if full[key] != value {
			return false
		}
	}
	return true
}

// TestReportWithoutSense checks that an invalid report is an error, not a panic, and not silently less capacity.
func TestReportWithoutSense(t *testing.T) {
	row := v1alpha1.ReportedNodes{Nodes: 1, Used: v1alpha1.Amounts{1}}
	group := func(change func(*v1alpha1.ReportedNodeGroup)) *v1alpha1.CapacityReport {
		g := v1alpha1.ReportedNodeGroup{Allocatable: v1alpha1.Amounts{8}, Rows: []v1alpha1.ReportedNodes{row}}
		change(&g)
		return &v1alpha1.CapacityReport{
			Resources: []corev1.ResourceName{"cpu"}, Labels: []string{"a=b"}, NodeGroups: []v1alpha1.ReportedNodeGroup{g},
		}
	}
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.ReportedNodeGroup)
	}{
		"Label":       {"Positions count from 0.", func(g *v1alpha1.ReportedNodeGroup) { g.Labels = []int32{1} }},
		"Negative":    {"There is nothing before the first.", func(g *v1alpha1.ReportedNodeGroup) { g.Labels = []int32{-1} }},
		"Allocatable": {"Each resource has an amount.", func(g *v1alpha1.ReportedNodeGroup) { g.Allocatable = nil }},
		"Used":        {"Each resource has an amount.", func(g *v1alpha1.ReportedNodeGroup) { g.Rows[0].Used = v1alpha1.Amounts{1, 2} }},
		"NoNodes":     {"A row is of at least one node.", func(g *v1alpha1.ReportedNodeGroup) { g.Rows[0].Nodes = 0 }},
		"Gang": {"A gang is listed.", func(g *v1alpha1.ReportedNodeGroup) {
			g.Rows[0].Gangs = []v1alpha1.ReportedUse{{Gang: 0, Used: v1alpha1.Amounts{1}}}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if s, err := snapshotOf(group(tc.change)); err == nil {
				t.Errorf("%s\ngot %+v", tc.reason, s)
			}
		})
	}
	if _, err := snapshotOf(group(func(*v1alpha1.ReportedNodeGroup) {})); err != nil {
		t.Errorf("without a fault: %v", err)
	}
}

// fleetOf returns a worker of 8-GPU nodes with jobs. Each job uses whole nodes, or, if mixed, single GPUs of many
// nodes.
func fleetOf(nodes, gangs int, mixed, named bool) *Snapshot {
	tally := NewTally()
	for n := range nodes {
		node := newNode(fmt.Sprint("node-", n), list("cpu", "96", "memory", "1056375764Ki", "ephemeral-storage", "1750Gi", "nvidia.com/gpu", "8",
			"rdma/hca", "8", "pods", "110"), corev1.ConditionTrue)
		node.Labels = map[string]string{corev1.LabelHostname: node.Name, "topology.kubernetes.io/zone": fmt.Sprint("eu-", n%3)}
		for l := range 30 {
			node.Labels[fmt.Sprintf("feature.node.kubernetes.io/feature-%d", l)] = "present"
		}
		if named {
			node.Labels["cloud.example.com/instance-id"] = fmt.Sprintf("i-0123456789abcdef%05d", n)
		}
		tally.setNode(node)
		tally.setPod(newPod(fmt.Sprint("daemon-", n), node.Name, corev1.PodRunning, list("cpu", "250m", "memory", "512Mi")))
		pods, gpus := 1, "8"
		if mixed {
			pods, gpus = 8, "1"
		}
		for p := range pods {
			gang := (n*gangs/nodes + p*37) % gangs
			tally.setPod(newPod(fmt.Sprintf("pod-%d-%d", n, p), node.Name, corev1.PodRunning, list("cpu", fmt.Sprint(8*(1+gang%3)),
				"memory", fmt.Sprint(64+gang%7, "Gi"), "nvidia.com/gpu", gpus), fmt.Sprint("llama-finetune-experiment-", gang), "node"))
		}
	}
	return tally.Snapshot()
}

// TestReportIsSmall checks the size of reports. etcd takes 1.5 MiB.
func TestReportIsSmall(t *testing.T) {
	cases := map[string]struct {
		reason       string
		nodes, gangs int
		mixed, named bool
		most         int
		abridged     []v1alpha1.Abridgement
	}{
		"WholeNodes": {reason: "The usual case.", nodes: 1000, gangs: 300, most: 150_000},
		"Mixed":      {reason: "Eight jobs on each node.", nodes: 1000, gangs: 300, mixed: true, most: 500_000},
		"Named":      {reason: "Each node has a label of its own.", nodes: 1000, gangs: 300, mixed: true, named: true, most: 900_000},
		"Huge": {
			reason: "As many nodes as a cluster may have, all different.", nodes: 5000, gangs: 1500, mixed: true, named: true, most: ReportLimit,
			abridged: []v1alpha1.Abridgement{v1alpha1.AbridgedFinishedGangs, v1alpha1.AbridgedNodeLabels, v1alpha1.AbridgedGangs},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			report, err := NewReport(fleetOf(tc.nodes, tc.gangs, tc.mixed, tc.named), ReportLimit)
			must(t, err)
			data, err := json.Marshal(report)
			must(t, err)
			t.Logf("%d bytes", len(data))
			if len(data) > tc.most {
				t.Errorf("%s\n%d bytes, want at most %d", tc.reason, len(data), tc.most)
			}
			differ(t, tc.abridged, report.Abridged, fmt.Sprintf("%s\nabridged", tc.reason))
		})
	}
}

func BenchmarkReport(b *testing.B) {
	for name, s := range map[string]*Snapshot{"WholeNodes": fleetOf(1000, 300, false, false), "Mixed": fleetOf(1000, 300, true, false)} {
		report, err := NewReport(s, ReportLimit)
		must(b, err)
		data, err := json.Marshal(report)
		must(b, err)
		b.Run("Encode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewReport(s, ReportLimit); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(data)), "bytes/report")
		})
		b.Run("Decode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				read := &v1alpha1.CapacityReport{}
				must(b, json.Unmarshal(data, read))
				if _, err := snapshotOf(read); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
