// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/test/check"
)

const nvidia = corev1.ResourceName("nvidia.com/gpu")

func nodeOf(name string, labels map[string]string, memory, usedGPUs int64) *capacity.NodeState {
	all := map[string]string{corev1.LabelHostname: name, "example.com/instance-id": "i-" + name, "nvidia.com/gpu.product": "H100"}
	maps.Copy(all, labels)
	return &capacity.NodeState{
		Name: name, Labels: all, Schedulable: true, Count: 1,
		Allocatable: capacity.Resources{"cpu": 96000, "memory": memory, nvidia: 8, "pods": 110},
		Used:        capacity.Resources{"cpu": 10 * usedGPUs, nvidia: usedGPUs, "pods": usedGPUs},
	}
}

// Nodes form one group if no difference between them matters.
func TestGroups(t *testing.T) {
	type group struct {
		Nodes  int32
		Labels map[string]string
		Taints int
		Memory int64
	}
	const memory = 1 << 40
	h100 := func(pairs ...string) map[string]string {
		labels := map[string]string{"nvidia.com/gpu.product": "H100"}
		for i := 0; i < len(pairs); i += 2 {
			labels[pairs[i]] = pairs[i+1]
		}
		return labels
	}
	three := func(change func(i int, node *capacity.NodeState)) (nodes []*capacity.NodeState) {
		for i := range 3 {
			node := nodeOf(fmt.Sprint("n", i), nil, memory+int64(i), 0)
			change(i, node)
			nodes = append(nodes, node)
		}
		return nodes
	}
	cases := map[string]struct {
		reason string
		nodes  []*capacity.NodeState
		want   []group
	}{
		"Bytes": {
			reason: "Real nodes differ by some bytes of memory, and by labels that name them.",
			nodes:  three(func(int, *capacity.NodeState) {}),
			want:   []group{{Nodes: 3, Labels: h100(), Memory: memory}},
		},
		"Zones": {
			reason: "A zone is something that jobs select by, even if there is one node in each.",
			nodes: three(func(i int, node *capacity.NodeState) {
				node.Labels["topology.kubernetes.io/zone"] = string(rune('a' + i))
			}),
			want: []group{
				{Nodes: 1, Labels: h100("topology.kubernetes.io/zone", "a"), Memory: memory},
				{Nodes: 1, Labels: h100("topology.kubernetes.io/zone", "b"), Memory: memory + 1},
				{Nodes: 1, Labels: h100("topology.kubernetes.io/zone", "c"), Memory: memory + 2},
			},
		},
		"Cliques": {
			reason: "A job may require an NVLink domain, even if there is one node in each.",
			nodes: three(func(i int, node *capacity.NodeState) {
				node.Labels["nvidia.com/gpu.clique"] = string(rune('a' + i))
			}),
			want: []group{
				{Nodes: 1, Labels: h100("nvidia.com/gpu.clique", "a"), Memory: memory},
				{Nodes: 1, Labels: h100("nvidia.com/gpu.clique", "b"), Memory: memory + 1},
				{Nodes: 1, Labels: h100("nvidia.com/gpu.clique", "c"), Memory: memory + 2},
			},
		},
		"SomeLabelled": {
			reason: "A label that some have tells them apart.",
			nodes: three(func(i int, node *capacity.NodeState) {
				if i > 0 {
					node.Labels["pool"] = "x"
				}
			}),
			want: []group{{Nodes: 2, Labels: h100("pool", "x"), Memory: memory + 1}, {Nodes: 1, Labels: h100(), Memory: memory}},
		},
		"Taints": {
			reason: "Only taints that keep pods off count.",
			nodes: three(func(i int, node *capacity.NodeState) {
				effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectPreferNoSchedule}
				node.Taints = []corev1.Taint{{Key: "t", Value: fmt.Sprint(i), Effect: effects[i]}}
			}),
			want: []group{{Nodes: 2, Labels: h100(), Memory: memory + 1}, {Nodes: 1, Labels: h100(), Taints: 1, Memory: memory}},
		},
		"Memory": {
			reason: "Twice the memory is another kind of node.",
			nodes: three(func(i int, node *capacity.NodeState) {
				if i == 2 {
					node.Allocatable["memory"] *= 2
				}
			}),
			want: []group{{Nodes: 2, Labels: h100(), Memory: memory}, {Nodes: 1, Labels: h100(), Memory: 2 * (memory + 2)}},
		},
		"Unschedulable": {
			reason: "Nodes that take no pods are left out.",
			nodes:  three(func(i int, node *capacity.NodeState) { node.Schedulable = i == 0 }),
			want:   []group{{Nodes: 1, Labels: h100("example.com/instance-id", "i-n0"), Memory: memory}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []group
			groups, _ := capacityOf(&capacity.Snapshot{Nodes: tc.nodes}, accelerators.Table{})
			for _, g := range groups {
				got = append(got, group{Nodes: g.Nodes, Labels: g.Labels, Taints: len(g.Taints), Memory: g.Allocatable.Memory().Value()})
			}
			check.Diff(t, tc.want, got, tc.reason)
		})
	}
}

// Whatever the nodes are, within the limits of the CRD, each node that is shown stands for a different node with the
// same labels and taints that has at least as much free.
func TestStatusNeverPromisesMore(t *testing.T) {
	largest := 0
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		var nodes []*capacity.NodeState
		for i := range 1 + random.IntN(600) {
			node := nodeOf(fmt.Sprint("n", i), map[string]string{
				"topology.kubernetes.io/zone": fmt.Sprint(random.IntN(3)), "rack": fmt.Sprint("rack-", random.IntN(1+int(seed)*5)),
			}, 1<<40+random.Int64N(1<<20), random.Int64N(9))
			node.Used["cpu"], node.Used["memory"] = random.Int64N(96001), random.Int64N(1<<40)
			node.Count = 1 + random.IntN(2)
			if random.IntN(4) == 0 {
				node.Taints = []corev1.Taint{{Key: "t", Value: fmt.Sprint(random.IntN(2)), Effect: corev1.TaintEffectNoSchedule}}
			}
			nodes = append(nodes, node)
		}
		groups, gpus := capacityOf(&capacity.Snapshot{Nodes: nodes}, accelerators.Table{})
		if len(groups) == 0 || len(groups) > groupLimit {
			t.Fatalf("seed %d: %d groups", seed, len(groups))
		}
		checkShown(t, nodes, groups)
		data, err := json.Marshal(groups)
		check.Must(t, err)
		largest = max(largest, len(data))
		// The order of nodes must not change the status: a changed status is a write.
		slices.Reverse(nodes)
		again, gpusAgain := capacityOf(&capacity.Snapshot{Nodes: nodes}, accelerators.Table{})
		if diff := cmp.Diff(groups, again); diff != "" || gpus != gpusAgain {
			t.Fatalf("seed %d: reversed: %s %s\n%s", seed, gpus, gpusAgain, diff)
		}
	}
	t.Logf("at most %d bytes", largest)
	if largest > 200_000 {
		t.Errorf("a status has %d bytes of node groups", largest)
	}
}

// checkShown matches the nodes that are shown with the real nodes.
func checkShown(t *testing.T, nodes []*capacity.NodeState, groups []v1alpha1.NodeGroup) {
	t.Helper()
	for _, group := range groups {
		var members []*capacity.NodeState
		there := 0
		for _, node := range nodes {
			if belongs(node, &group) {
				members = append(members, node)
				there += node.Count
			}
		}
		if there != int(group.Nodes) || len(group.Free) > freeLimit {
			t.Fatalf("%d nodes in %d rows are shown, there are %d: %+v", group.Nodes, len(group.Free), there, group.Labels)
		}
		shown := 0
		for _, row := range group.Free {
			shown += int(row.Nodes)
			// The number of nodes with at least this much free is not below the number that is shown.
			if atLeast(members, row.Free) < shownWith(group.Free, row.Free) {
				t.Fatalf("more nodes are shown than have %v free", row.Free)
			}
			if quantity := row.Free[nvidia]; quantity.Value() != row.GPUs {
				t.Fatalf("%d GPUs, and free are %v", row.GPUs, row.Free)
			}
		}
		if shown != int(group.Nodes) {
			t.Fatalf("rows have %d nodes, the group %d", shown, group.Nodes)
		}
	}
}

func belongs(node *capacity.NodeState, group *v1alpha1.NodeGroup) bool {
	for key, value := range group.Labels {
		if node.Labels[key] != value {
			return false
		}
	}
	return cmp.Diff(capacity.HardTaints(node.Taints), group.Taints) == ""
}

func atLeast(nodes []*capacity.NodeState, wanted corev1.ResourceList) (count int) {
	for _, node := range nodes {
		if covers(listOf(freeOf(node)), wanted) {
			count += node.Count
		}
	}
	return count
}

func shownWith(rows []v1alpha1.FreeNodes, wanted corev1.ResourceList) (count int) {
	for _, row := range rows {
		if covers(row.Free, wanted) {
			count += int(row.Nodes)
		}
	}
	return count
}

func covers(has, wanted corev1.ResourceList) bool {
	for name, amount := range wanted {
		if quantity := has[name]; quantity.Cmp(amount) < 0 {
			return false
		}
	}
	return true
}

func BenchmarkCapacityOf(b *testing.B) {
	var nodes []*capacity.NodeState
	for i := range 1000 {
		node := nodeOf(fmt.Sprint("n", i), map[string]string{"topology.kubernetes.io/zone": fmt.Sprint(i % 3)}, 1<<40+int64(i), int64(i%9))
		for l := range 30 {
			node.Labels[fmt.Sprint("feature-", l)] = "present"
		}
		nodes = append(nodes, node)
	}
	b.ReportAllocs()
	for b.Loop() {
		capacityOf(&capacity.Snapshot{Nodes: nodes}, accelerators.Table{})
	}
}

// What a group is known for, and what of it the sum over all nodes counts.
func TestDevicesOfNodes(t *testing.T) {
	table, err := accelerators.Parse([]string{"example.com/npu=Device:example.com/npu.model"})
	check.Must(t, err)
	type group struct {
		Resource      corev1.ResourceName
		Unit, Product string
		Free          int64
	}
	for name, tc := range map[string]struct {
		reason            string
		labels            map[string]string
		allocatable, used capacity.Resources
		want              group
		gpus              string
	}{
		"TPU": {
			reason: "a vendor whose names have no gpu in them", labels: map[string]string{"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"},
			allocatable: capacity.Resources{"google.com/tpu": 4}, used: capacity.Resources{"google.com/tpu": 1},
			want: group{"google.com/tpu", "Device", "tpu-v6e-slice", 3}, gpus: "3/4",
		},
		"Neuron": {
			reason: "three names for the same devices count once", labels: map[string]string{corev1.LabelInstanceTypeStable: "trn2.48xlarge"},
			allocatable: capacity.Resources{"aws.amazon.com/neuron": 16, "aws.amazon.com/neurondevice": 16, "aws.amazon.com/neuroncore": 128},
			used:        capacity.Resources{"aws.amazon.com/neuron": 4},
			want:        group{"aws.amazon.com/neuron", "Device", "trn2.48xlarge", 12}, gpus: "12/16",
		},
		"AllDivided": {
			reason: "shares are no devices, and are shown", labels: map[string]string{"nvidia.com/gpu.product": "H100"},
			allocatable: capacity.Resources{nvidia: 0, "nvidia.com/mig-1g.10gb": 14}, used: capacity.Resources{"nvidia.com/mig-1g.10gb": 2},
			want: group{"nvidia.com/mig-1g.10gb", "Share", "H100", 12}, gpus: "0/0",
		},
		"PartlyDivided": {
			reason: "a node is known for its whole devices", labels: map[string]string{"nvidia.com/gpu.product": "H100"},
			allocatable: capacity.Resources{nvidia: 7, "nvidia.com/gpu.shared": 4},
			want:        group{nvidia, "Device", "H100", 7}, gpus: "7/7",
		},
		"TwoKinds": {
			reason:      "the sum has all devices, whatever the node is known for",
			allocatable: capacity.Resources{"gpu.intel.com/i915": 1, "gpu.intel.com/xe": 2, "gpu.intel.com/xe_monitoring": 8},
			want:        group{"gpu.intel.com/i915", "Device", "", 1}, gpus: "3/3",
		},
		"VirtualGPU": {
			reason:      "neither megabytes nor percent",
			allocatable: capacity.Resources{"volcano.sh/vgpu-cores": 800, "volcano.sh/vgpu-memory": 89424, "volcano.sh/vgpu-number": 8},
			want:        group{"volcano.sh/vgpu-number", "Share", "", 8}, gpus: "0/0",
		},
		"Added": {
			reason: "a row of the admin", labels: map[string]string{"example.com/npu.model": "N1"},
			allocatable: capacity.Resources{"example.com/npu": 2}, want: group{"example.com/npu", "Device", "N1", 2}, gpus: "2/2",
		},
		"NIC": {reason: "not every extended resource computes", allocatable: capacity.Resources{"vpc.amazonaws.com/efa": 32}, gpus: "0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &capacity.NodeState{Name: "n", Labels: tc.labels, Schedulable: true, Count: 1, Allocatable: tc.allocatable, Used: tc.used}
			groups, gpus := capacityOf(&capacity.Snapshot{Nodes: []*capacity.NodeState{node}}, table)
			got := group{groups[0].Resource, groups[0].Unit, groups[0].Product, groups[0].Free[0].GPUs}
			check.Diff(t, tc.want, got, tc.reason)
			check.Equal(t, tc.gpus, gpus, "%s: gpus", tc.reason)
		})
	}
}
