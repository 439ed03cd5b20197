// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// podSet returns trainers that request GPUs, with changes.
func podSet(count int32, gpus int64, change ...func(*v1alpha1.PodSet)) v1alpha1.PodSet {
	set := v1alpha1.PodSet{
		Name: "node", Role: v1alpha1.RoleTrainer, Count: count,
		Requests: corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)},
	}
	for _, c := range change {
		c(&set)
	}
	return set
}

func named(name string, role v1alpha1.PodSetRole) func(*v1alpha1.PodSet) {
	return func(set *v1alpha1.PodSet) { set.Name, set.Role = name, role }
}

func requests(list corev1.ResourceList) func(*v1alpha1.PodSet) {
	return func(set *v1alpha1.PodSet) { set.Requests = list }
}

func onNodes(labels map[string]string) func(*v1alpha1.PodSet) {
	return func(set *v1alpha1.PodSet) { set.NodeSelector = labels }
}

func affinity(terms ...corev1.NodeSelectorTerm) func(*v1alpha1.PodSet) {
	return func(set *v1alpha1.PodSet) { set.NodeAffinity = &corev1.NodeSelector{NodeSelectorTerms: terms} }
}

func expression(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}},
	}
}

func field(op corev1.NodeSelectorOperator, name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: []string{name}}},
	}
}

func tolerating(t ...corev1.Toleration) func(*v1alpha1.PodSet) {
	return func(set *v1alpha1.PodSet) { set.Tolerations = t }
}

func taint(key, value string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: effect}
}

// gpuNodes are nodes with the same number of free GPUs each.
func gpuNodes(count int, gpus int64) NodeGroup {
	return NodeGroup{Labels: map[string]string{"gpu": "a100"}, Free: Resources{gpu: gpus}, Count: count}
}

// TestSpread: Reserve leaves whole nodes, Spread uses as many nodes as a scheduler could.
func TestSpread(t *testing.T) {
	group := func(count int, gpus int64) NodeGroup { return NodeGroup{Free: Resources{gpu: gpus}, Count: count} }
	for name, test := range map[string]struct {
		reason                 string
		nodes                  []NodeGroup
		podSets                []v1alpha1.PodSet
		reserved, wantedSpread []NodeGroup
	}{
		"OnEachNode": {
			reason: "one after the other goes to the node with the most free", nodes: []NodeGroup{group(4, 4), group(1, 2)},
			podSets:  []v1alpha1.PodSet{podSet(3, 1)},
			reserved: []NodeGroup{group(1, 0), group(1, 3), group(3, 4)}, wantedSpread: []NodeGroup{group(1, 2), group(3, 3), group(1, 4)},
		},
		"MoreThanNodes": {
			reason: "and then on those again", nodes: []NodeGroup{group(2, 4), group(1, 3)},
			podSets:  []v1alpha1.PodSet{podSet(5, 1)},
			reserved: []NodeGroup{group(1, 0), group(1, 2), group(1, 4)}, wantedSpread: []NodeGroup{group(3, 2)},
		},
		"MoreThanRoom": {
			reason: "what has no place is taken off nothing", nodes: []NodeGroup{group(1, 4), group(1, 1)},
			podSets:  []v1alpha1.PodSet{podSet(4, 2)},
			reserved: []NodeGroup{group(1, 0), group(1, 1)}, wantedSpread: []NodeGroup{group(1, 0), group(1, 1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := NewNodes(test.nodes)
			check.Diff(t, test.reserved, nodes.Reserve(test.podSets).Groups(), "Reserve")
			check.Diff(t, test.wantedSpread, nodes.Spread(test.podSets).Groups(), fmt.Sprintf("Spread: %s", test.reason))
		})
	}
}

func TestFit(t *testing.T) {
	h100 := map[string]string{"gpu": "h100"}
	infra := []corev1.Taint{taint("dedicated", "infra", corev1.TaintEffectNoSchedule)}
	cases := map[string]struct {
		reason  string
		podSets []v1alpha1.PodSet
		nodes   []NodeGroup
		want    *Shortfall
	}{
		"NoPods": {
			reason: "a job without pods needs no nodes",
		},
		"NoNodes": {
			reason:  "a pod needs a node even if it requests nothing",
			podSets: []v1alpha1.PodSet{podSet(1, 0)},
			want:    &Shortfall{PodSet: "node", Message: "the worker has no node that takes pods"},
		},
		"WholeNodes": {
			reason:  "each pod has a node",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			nodes:   []NodeGroup{gpuNodes(1, 8), gpuNodes(1, 8)},
		},
		"Fragments": {
			reason:  "the sum is not what counts",
			podSets: []v1alpha1.PodSet{podSet(8, 8)},
			nodes:   []NodeGroup{gpuNodes(64, 1)},
			want:    &Shortfall{PodSet: "node", Message: "lacks 64 nvidia.com/gpu on nodes with at least 8 free; at most 8 more such nodes would do; it has room for 0 of 8 pods, 64 nodes in all"},
		},
		"SeveralPerNode": {
			reason:  "small pods share nodes, and what is left over of a node is of no use",
			podSets: []v1alpha1.PodSet{podSet(6, 3)},
			nodes:   []NodeGroup{gpuNodes(2, 8)},
			want:    &Shortfall{PodSet: "node", Message: "lacks 6 nvidia.com/gpu on nodes with at least 3 free; at most 2 more such nodes would do; it has room for 4 of 6 pods, 2 nodes in all"},
		},
		"OneNode": {
			reason:  "for a single pod the most that is free helps more than a count",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			nodes:   []NodeGroup{gpuNodes(1, 3), gpuNodes(2, 4)},
			want:    &Shortfall{PodSet: "node", Message: "needs a node with 8 nvidia.com/gpu free; the most on one node is 4 nvidia.com/gpu, 3 nodes in all"},
		},
		"OtherNodes": {
			reason: "resources must be free on the same node",
			podSets: []v1alpha1.PodSet{podSet(1, 8, requests(corev1.ResourceList{
				gpu: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			}))},
			nodes: []NodeGroup{
				{Free: Resources{gpu: 8, corev1.ResourceMemory: 1 << 30}, Count: 1},
				{Free: Resources{gpu: 0, corev1.ResourceMemory: 64 << 30}, Count: 1},
			},
			want: &Shortfall{PodSet: "node", Message: "needs a node with 8 nvidia.com/gpu and 8Gi memory free; no such node, 2 nodes in all"},
		},
		"OtherNodesForSeveral": {
			reason: "of each there is enough for both pods, and for neither on one node",
			podSets: []v1alpha1.PodSet{podSet(2, 0, requests(corev1.ResourceList{
				gpu: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourceCPU: resource.MustParse("1"),
			}))},
			nodes: []NodeGroup{
				{Free: Resources{gpu: 8, corev1.ResourceMemory: 1 << 30, corev1.ResourceCPU: 8000}, Count: 1},
				{Free: Resources{gpu: 0, corev1.ResourceMemory: 64 << 30, corev1.ResourceCPU: 8000}, Count: 1},
			},
			want: &Shortfall{PodSet: "node", Message: "lacks 2 nodes with at least 4 nvidia.com/gpu and 8Gi memory free; " +
				"it has room for 0 of 2 pods, 2 nodes in all"},
		},
		"OnlyWhatLacks": {
			reason: "what there is enough of is not in the message",
			podSets: []v1alpha1.PodSet{podSet(2, 8, requests(corev1.ResourceList{
				gpu: resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("1500m"),
			}))},
			nodes: []NodeGroup{{Free: Resources{gpu: 8, corev1.ResourceCPU: 2500}, Count: 1}},
			want:  &Shortfall{PodSet: "node", Message: "lacks 1500m cpu on nodes with at least 1500m free; 1 more such node would do; it has room for 1 of 2 pods, 1 node in all"},
		},
		"ZeroRequest": {
			reason:  "a request of zero does not constrain",
			podSets: []v1alpha1.PodSet{podSet(9, 0)},
			nodes:   []NodeGroup{{Free: Resources{corev1.ResourceCPU: -100}, Count: 1}},
		},
		"ZeroCount": {
			reason:  "no pods need no room",
			podSets: []v1alpha1.PodSet{podSet(0, 8)},
			nodes:   []NodeGroup{gpuNodes(1, 1)},
		},
		"PodsPerNode": {
			reason:  "each pod takes one of the node's pods",
			podSets: []v1alpha1.PodSet{podSet(3, 0)},
			nodes:   []NodeGroup{{Free: Resources{corev1.ResourcePods: 2}, Count: 1}},
			want:    &Shortfall{PodSet: "node", Message: "lacks 1 pod slot on nodes with at least 1 free; 1 more such node would do; it has room for 2 of 3 pods, 1 node in all"},
		},
		"PodsNotListed": {
			reason:  "a node that does not list pods takes any number",
			podSets: []v1alpha1.PodSet{podSet(300, 0)},
			nodes:   []NodeGroup{{Free: Resources{corev1.ResourcePods: 0}, Count: 1}, {Count: 1}},
		},
		"NodeSelector": {
			reason:  "the message is sorted",
			podSets: []v1alpha1.PodSet{podSet(1, 1, onNodes(map[string]string{"gpu": "h100", "a": "b"}))},
			nodes:   []NodeGroup{gpuNodes(1, 8)},
			want:    &Shortfall{PodSet: "node", Message: "no node matches nodeSelector a=b,gpu=h100"},
		},
		"NodeSelectorMatches": {
			reason:  "only nodes that match count",
			podSets: []v1alpha1.PodSet{podSet(2, 8, onNodes(h100))},
			nodes: []NodeGroup{
				gpuNodes(8, 8),
				{Labels: h100, Free: Resources{gpu: 8}, Count: 1}, {Labels: h100, Free: Resources{gpu: 7}, Count: 2},
			},
			want: &Shortfall{PodSet: "node", Message: "lacks 8 nvidia.com/gpu on nodes with at least 8 free; 1 more such node would do; it has room for 1 of 2 pods, 3 nodes match its node selector"},
		},
		"Hostname": {
			reason:  "groups have no host names",
			podSets: []v1alpha1.PodSet{podSet(1, 1, onNodes(map[string]string{corev1.LabelHostname: "node-1"}))},
			nodes:   []NodeGroup{{Labels: map[string]string{corev1.LabelHostname: "node-1"}, Free: Resources{gpu: 8}, Count: 1}},
			want:    &Shortfall{PodSet: "node", Message: "no node matches nodeSelector kubernetes.io/hostname=node-1"},
		},
		"Affinity": {
			reason:  "terms are alternatives",
			podSets: []v1alpha1.PodSet{podSet(1, 1, affinity(expression("gpu", corev1.NodeSelectorOpIn, "h100"), expression("gpu", corev1.NodeSelectorOpExists)))},
			nodes:   []NodeGroup{gpuNodes(1, 8)},
		},
		"AffinityMismatch": {
			reason:  "required affinity keeps pods off other nodes",
			podSets: []v1alpha1.PodSet{podSet(1, 1, affinity(expression("gpu", corev1.NodeSelectorOpNotIn, "a100")))},
			nodes:   []NodeGroup{gpuNodes(1, 8)},
			want:    &Shortfall{PodSet: "node", Message: "no node matches its nodeAffinity"},
		},
		"AffinityToOneNode": {
			reason:  "a term on the node's name must not be taken as matching because groups have no names",
			podSets: []v1alpha1.PodSet{podSet(1, 1, affinity(field(corev1.NodeSelectorOpIn, "node-1")))},
			nodes:   []NodeGroup{gpuNodes(1, 8)},
			want:    &Shortfall{PodSet: "node", Message: "no node matches its nodeAffinity"},
		},
		"AffinityInvalid": {
			reason:  "the user learns what is wrong",
			podSets: []v1alpha1.PodSet{podSet(1, 1, affinity(expression("gpu", "Like", "a100")))},
			nodes:   []NodeGroup{gpuNodes(1, 8)},
			want: &Shortfall{PodSet: "node", Message: `its nodeAffinity is invalid: nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Like": ` +
				`supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`},
		},
		"Tainted": {
			reason:  "nodes without GPUs are no help, so the taint is what matters",
			podSets: []v1alpha1.PodSet{podSet(1, 1)},
			nodes: []NodeGroup{
				{Free: Resources{gpu: 8}, Taints: infra, Count: 2},
				{Free: Resources{corev1.ResourceCPU: 8000}, Count: 2},
			},
			want: &Shortfall{PodSet: "node", Message: "every node with nvidia.com/gpu has taint dedicated=infra:NoSchedule"},
		},
		"SomeTainted": {
			reason:  "tainted nodes would be a way out",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			nodes:   []NodeGroup{gpuNodes(1, 8), {Free: Resources{gpu: 8}, Taints: infra, Count: 2}},
			want: &Shortfall{PodSet: "node", Message: "lacks 8 nvidia.com/gpu on nodes with at least 8 free; 1 more such node would do; it has room for 1 of 2 pods, 1 node in all, " +
				"2 more with a taint that it does not tolerate"},
		},
		"NoExecute": {
			reason:  "NoExecute keeps pods off too",
			podSets: []v1alpha1.PodSet{podSet(1, 0)},
			nodes:   []NodeGroup{{Taints: []corev1.Taint{taint("a", "", corev1.TaintEffectNoExecute)}, Count: 1}},
			want:    &Shortfall{PodSet: "node", Message: "every node has taint a:NoExecute"},
		},
		"PreferNoSchedule": {
			reason:  "a preference does not keep pods off",
			podSets: []v1alpha1.PodSet{podSet(1, 0)},
			nodes:   []NodeGroup{{Taints: []corev1.Taint{taint("a", "", corev1.TaintEffectPreferNoSchedule)}, Count: 1}},
		},
		"Tolerated": {
			reason:  "each taint must be tolerated",
			podSets: []v1alpha1.PodSet{podSet(1, 0, tolerating(corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}))},
			nodes: []NodeGroup{{Taints: []corev1.Taint{
				taint("a", "x", corev1.TaintEffectNoExecute), taint("b", "", corev1.TaintEffectNoSchedule),
			}, Count: 1}},
			want: &Shortfall{PodSet: "node", Message: "every node has taint b:NoSchedule"},
		},
		"ToleratesAll": {
			reason:  "a toleration without key tolerates everything",
			podSets: []v1alpha1.PodSet{podSet(1, 8, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}))},
			nodes:   []NodeGroup{{Free: Resources{gpu: 8}, Taints: infra, Count: 1}},
		},
		"NoSuchResource": {
			reason:  "no amount of waiting gives the worker the resource",
			podSets: []v1alpha1.PodSet{podSet(1, 0, requests(corev1.ResourceList{"amd.com/gpu": resource.MustParse("1")}))},
			nodes:   []NodeGroup{gpuNodes(1, 8)},
			want: &Shortfall{PodSet: "node", Message: "no node has the resource amd.com/gpu; if the worker can add nodes that have it, " +
				"describe them in spec.expandable of the WorkerCluster; if a scheduler extender manages it there, add it to spec.ignoredResources"},
		},
		"ResourceElsewhere": {
			reason:  "the selector leads to nodes without the resource",
			podSets: []v1alpha1.PodSet{podSet(1, 1, onNodes(map[string]string{"pool": "cpu"}))},
			nodes:   []NodeGroup{gpuNodes(1, 8), {Labels: map[string]string{"pool": "cpu"}, Count: 1}},
			want:    &Shortfall{PodSet: "node", Message: "no node that matches its node selector has the resource nvidia.com/gpu"},
		},
		"InitializersRunBefore": {
			reason: "the demand is the larger of the two phases, not their sum",
			podSets: []v1alpha1.PodSet{
				podSet(1, 4, named("dataset", v1alpha1.RoleDatasetInitializer)),
				podSet(1, 4, named("model", v1alpha1.RoleModelInitializer)),
				podSet(1, 8),
			},
			nodes: []NodeGroup{gpuNodes(1, 8)},
		},
		"ConcurrentInitializer": {
			reason: "an initializer whose end nobody waits for needs its room beside the trainer",
			podSets: []v1alpha1.PodSet{
				podSet(1, 4, named("dataset", v1alpha1.RoleDatasetInitializer), func(set *v1alpha1.PodSet) { set.Concurrent = true }), podSet(1, 8),
			},
			nodes: []NodeGroup{gpuNodes(1, 8)},
			want:  &Shortfall{Message: "dataset and node run at the same time and lack 4 nvidia.com/gpu (12 needed, 8 free)"},
		},
		"InitializerDoesNotFit": {
			reason: "each phase must fit, and the message says whose pods do not",
			podSets: []v1alpha1.PodSet{
				podSet(1, 9, named("tokenizer", "tokenizer-initializer")),
				podSet(1, 8),
			},
			nodes: []NodeGroup{gpuNodes(1, 8)},
			want:  &Shortfall{PodSet: "tokenizer", Message: "tokenizer: needs a node with 9 nvidia.com/gpu free; the most on one node is 8 nvidia.com/gpu, 1 node in all"},
		},
		"LauncherAndNodes": {
			reason:  "launcher and nodes run at the same time",
			podSets: []v1alpha1.PodSet{podSet(1, 1, named("launcher", v1alpha1.RoleLauncher)), podSet(2, 8)},
			nodes:   []NodeGroup{gpuNodes(2, 8)},
			want:    &Shortfall{Message: "launcher and node run at the same time and lack 1 nvidia.com/gpu (17 needed, 16 free)"},
		},
		"NotTogether": {
			reason:  "the sum fits, and the pods still do not",
			podSets: []v1alpha1.PodSet{podSet(1, 2, named("launcher", v1alpha1.RoleLauncher)), podSet(2, 7)},
			nodes:   []NodeGroup{gpuNodes(2, 8)},
			want: &Shortfall{Message: "launcher and node each fit by themselves, but not at the same time; " +
				"1 more node with at least 2 nvidia.com/gpu free for launcher would do"},
		},
		"AlikeInTwoPodSets": {
			reason:  "pods of equal shape are fitted exactly, in whatever PodSet they are",
			podSets: []v1alpha1.PodSet{podSet(1, 4, named("a", "")), podSet(1, 4, named("b", ""))},
			nodes:   []NodeGroup{gpuNodes(1, 7)},
			want:    &Shortfall{PodSet: "a", Message: "lacks 4 nvidia.com/gpu on nodes with at least 4 free; 1 more such node would do; it has room for 1 of 2 pods, 1 node in all"},
		},
		"SmallPodsHaveFewNodes": {
			reason: "the large pod must leave the only node that the small ones may use",
			podSets: []v1alpha1.PodSet{
				podSet(2, 1, named("small", ""), onNodes(map[string]string{"gpu": "a100"})),
				podSet(1, 3, named("large", "")),
			},
			nodes: []NodeGroup{gpuNodes(1, 3), {Free: Resources{gpu: 8}, Count: 1}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := NewNodes(tc.nodes).Fit(tc.podSets)
			check.Diff(t, tc.want, got, fmt.Sprintf("%s\nFit", tc.reason))
		})
	}
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// resources returns the requests of one pod: GPUs and CPUs.
func resources(gpus, cpus string) corev1.ResourceList {
	return corev1.ResourceList{gpu: quantity(gpus), corev1.ResourceCPU: quantity(cpus)}
}
