// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const poolLabel = "example.com/pool"

// pool is an item of spec.expandable whose nodes have 8 GPUs, with changes.
func pool(name string, maximum int32, change ...func(*v1alpha1.ExpandableNodes)) v1alpha1.ExpandableNodes {
	item := v1alpha1.ExpandableNodes{
		Name: name, Maximum: maximum, Selector: map[string]string{poolLabel: name},
		Allocatable: v1alpha1.NodeResources{gpu: resource.MustParse("8")},
	}
	for _, c := range change {
		c(&item)
	}
	return item
}

func perGPU(price string) func(*v1alpha1.ExpandableNodes) {
	return func(item *v1alpha1.ExpandableNodes) { item.Price = v1alpha1.Prices{gpu: resource.MustParse(price)} }
}

func tainted(taints ...corev1.Taint) func(*v1alpha1.ExpandableNodes) {
	return func(item *v1alpha1.ExpandableNodes) { item.Taints = taints }
}

func withLabel(key, value string) func(*v1alpha1.ExpandableNodes) {
	return func(item *v1alpha1.ExpandableNodes) { item.Labels = map[string]string{key: value} }
}

// expandable is a worker with some nodes, and pools of which no node is there.
func expandable(name v1alpha1.ClusterName, there []NodeGroup, pools ...v1alpha1.ExpandableNodes) Worker {
	cluster := &v1alpha1.WorkerCluster{Spec: v1alpha1.WorkerClusterSpec{
		Expandable: pools, Price: v1alpha1.Prices{gpu: resource.MustParse("1")},
	}}
	cluster.Name = string(name)
	return WorkerOf(cluster, NewNodes(append(slices.Clone(there), AddableOf(cluster)...)), Resources{gpu: 64})
}

func TestDecideAddedNodes(t *testing.T) {
	const noOther = "; no worker has room for the job without that, and no other worker could add nodes for it"
	there := func(count int, gpus int64) []NodeGroup { return []NodeGroup{gpuNodes(count, gpus)} }
	preferring := func(names ...v1alpha1.ClusterName) []v1alpha1.Score {
		return []v1alpha1.Score{{Name: v1alpha1.ScorePreference, Weight: 1, Order: names}}
	}
	claimed := func(set *v1alpha1.PodSet) {
		set.Requests = corev1.ResourceList{v1alpha1.ClaimedDevices + "tpu": resource.MustParse("4")}
	}
	port := hostPort("")
	for name, test := range map[string]struct {
		reason   string
		podSets  []v1alpha1.PodSet
		topology *Topology
		addNodes v1alpha1.AddNodes
		scoring  []v1alpha1.Score
		workers  []Worker
		// want is the worker, and domain its domain. message is the beginning of the message.
		want    v1alpha1.ClusterName
		domain  string
		message string
	}{
		"ThereFirst": {
			reason:  "room that is there wins, whatever the scores are",
			podSets: []v1alpha1.PodSet{podSet(1, 8)}, scoring: preferring("a"),
			workers: []Worker{expandable("a", nil, pool("h100", 4)), expandable("b", there(1, 8))},
			want:    "b", message: "score 0: Preference 0; the only worker on which the job fits",
		},
		"ThereFirstOnOneWorker": {
			reason:  "a worker that could add nodes scores as if it could not, where the job needs none of them",
			podSets: []v1alpha1.PodSet{podSet(1, 8)}, scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreLeastAllocated, Weight: 1}},
			workers: []Worker{expandable("a", there(2, 8), pool("h100", 64))},
			want:    "a", message: "score 13: LeastAllocated 13; the only worker on which the job fits",
		},
		"Empty": {
			reason:  "a pool that is scaled to zero takes the job",
			podSets: []v1alpha1.PodSet{podSet(2, 8)}, workers: []Worker{expandable("a", nil, pool("h100", 4)), worker("b", 1, 8)},
			want: "a", message: "would add 2 nodes of h100 for 16 per hour; score 94: MostAllocated 94" + noOther,
		},
		"Both": {
			reason:  "a gang is on nodes that are there and on added ones",
			podSets: []v1alpha1.PodSet{podSet(3, 8)}, workers: []Worker{expandable("a", there(2, 8), pool("h100", 4))},
			want: "a", message: "would add 1 node of h100 for 8 per hour; ",
		},
		"TwoPools": {
			reason:  "the job needs nodes of both pools",
			podSets: []v1alpha1.PodSet{podSet(3, 8)}, workers: []Worker{expandable("a", nil, pool("h200", 2), pool("h100", 1))},
			want: "a", message: "would add 1 node of h100 and 2 nodes of h200 for 24 per hour; ",
		},
		"Maximum": {
			reason:  "a worker adds no more nodes than it may",
			podSets: []v1alpha1.PodSet{podSet(4, 8)}, workers: []Worker{expandable("a", there(1, 8), pool("h100", 2))},
			message: "a: lacks 8 nvidia.com/gpu on nodes with at least 8 free; 1 more such node would do; it has room for 3 of 4 pods, " +
				"3 nodes in all, 2 of which the worker would have to add",
		},
		"Cheapest": {
			reason:  "money counts before the number of nodes and the scores",
			podSets: []v1alpha1.PodSet{podSet(8, 1)}, scoring: preferring("a", "b"),
			workers: []Worker{
				expandable("a", nil, pool("h100", 4, perGPU("5"))), expandable("b", nil, pool("h100", 4, perGPU("4"))),
				expandable("c", nil, pool("small", 8, perGPU("3"), func(item *v1alpha1.ExpandableNodes) {
					item.Allocatable = v1alpha1.NodeResources{gpu: resource.MustParse("4")}
				})),
			},
			want: "c", message: "would add 2 nodes of small for 24 per hour; score 0: Preference 0; no worker has room for the job without that; " +
				"the first by price, nodes and score of 3 workers that could add nodes",
		},
		"Fewest": {
			reason:  "of workers that cost the same",
			podSets: []v1alpha1.PodSet{podSet(2, 8)}, scoring: preferring("a", "b"),
			workers: []Worker{expandable("a", nil, pool("h100", 4, perGPU("0"))), expandable("b", there(1, 8), pool("h100", 4, perGPU("0")))},
			want:    "b", message: "would add 1 node of h100; score 50: ",
		},
		"Score": {
			reason:  "of workers that add the same",
			podSets: []v1alpha1.PodSet{podSet(2, 8)}, scoring: preferring("b", "a"),
			workers: []Worker{expandable("a", nil, pool("h100", 4)), expandable("b", nil, pool("h100", 4))},
			want:    "b", message: "would add 2 nodes of h100 for 16 per hour; score 100: Preference 100; ",
		},
		"ByScore": {
			reason:  "the policy makes no difference between nodes that are there and others",
			podSets: []v1alpha1.PodSet{podSet(1, 8)}, scoring: preferring("a"), addNodes: v1alpha1.AddNodesByScore,
			workers: []Worker{expandable("a", nil, pool("h100", 4)), expandable("b", there(1, 8))},
			want:    "a", message: "would add 1 node of h100 for 8 per hour; score 100: Preference 100; the highest of 2 workers on which the job fits",
		},
		"ByScoreOfNodes": {
			reason:  "the number of added nodes is a score like others",
			podSets: []v1alpha1.PodSet{podSet(3, 8)}, addNodes: v1alpha1.AddNodesByScore,
			scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreAddedNodes, Weight: 1}},
			workers: []Worker{expandable("a", nil, pool("h100", 4)), expandable("b", there(2, 8), pool("h100", 4))},
			want:    "b", message: "would add 1 node of h100 for 8 per hour; score 50: AddedNodes 50; the highest of 2",
		},
		"ByPrice": {
			reason:  "what a job takes on added nodes has their price",
			podSets: []v1alpha1.PodSet{podSet(2, 8)}, addNodes: v1alpha1.AddNodesByScore,
			scoring: []v1alpha1.Score{{Name: v1alpha1.ScorePrice, Weight: 1, Ceiling: v1alpha1.Prices{gpu: resource.MustParse("10")}}},
			workers: []Worker{expandable("a", there(1, 8), pool("h100", 4, perGPU("4")))},
			want:    "a", message: "would add 1 node of h100 for 32 per hour; score 75: Price 75; ",
		},
		"Never": {
			reason:  "the policy lets only nodes count that are there",
			podSets: []v1alpha1.PodSet{podSet(1, 8)}, addNodes: v1alpha1.AddNodesNever,
			workers: []Worker{expandable("a", there(1, 7), pool("h100", 4))},
			message: "a: needs a node with 8 nvidia.com/gpu free; the most on one node is 7 nvidia.com/gpu, 1 node in all",
		},
		"Taint": {
			reason:  "new nodes have taints",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			workers: []Worker{expandable("a", nil, pool("h100", 4, tainted(corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})))},
			message: "a: every node with nvidia.com/gpu has taint gpu:NoSchedule",
		},
		"Selector": {
			reason:  "new nodes have the labels of the pool and others",
			podSets: []v1alpha1.PodSet{podSet(1, 8, onNodes(map[string]string{poolLabel: "h100", "zone": "z"}))},
			workers: []Worker{expandable("a", nil, pool("h200", 4, withLabel("zone", "z")), pool("h100", 4, withLabel("zone", "z")))},
			want:    "a", message: "would add 1 node of h100 ",
		},
		"Domain": {
			reason:  "a label of new nodes is a domain",
			podSets: []v1alpha1.PodSet{podSet(2, 8)}, topology: &Topology{Label: clique, Required: true},
			workers: []Worker{expandable("a", []NodeGroup{inDomain("c0", 1, 8)}, pool("h100", 4, withLabel(clique, "c1")))},
			want:    "a", domain: "c1", message: "would add 2 nodes of h100 ",
		},
		"DomainThere": {
			reason:  "a domain that is there comes first, also if the other one is tighter",
			podSets: []v1alpha1.PodSet{podSet(2, 8)}, topology: &Topology{Label: clique, Required: true},
			workers: []Worker{expandable("a", []NodeGroup{inDomain("c0", 4, 8)}, pool("h100", 2, withLabel(clique, "c1")))},
			want:    "a", domain: "c0", message: "score ",
		},
		"PreferredDomain": {
			reason:  "room that is there comes before a domain that the job prefers",
			podSets: []v1alpha1.PodSet{podSet(2, 8)}, topology: &Topology{Label: clique},
			workers: []Worker{expandable("a", there(2, 8)), expandable("b", nil, pool("h100", 2, withLabel(clique, "c1")))},
			want:    "a", message: "score ",
		},
		"HostPort": {
			reason:  "each pod with a host port needs a node of its own",
			podSets: []v1alpha1.PodSet{podSet(2, 1, onPorts(port))},
			workers: []Worker{expandable("a", nil, pool("h100", 4))},
			want:    "a", message: "would add 2 nodes of h100 ",
		},
		"HostPortTaken": {
			reason:  "new nodes have their host ports free",
			podSets: []v1alpha1.PodSet{podSet(2, 0, onPorts(port))},
			workers: []Worker{expandable("a", []NodeGroup{taking(1, port), taking(1)}, pool("h100", 4))},
			want:    "a", message: "would add 1 node of h100 ",
		},
		"Devices": {
			reason:  "new nodes have devices that pods claim",
			podSets: []v1alpha1.PodSet{podSet(2, 0, claimed)},
			workers: []Worker{expandable("a", nil, pool("tpus", 4, func(item *v1alpha1.ExpandableNodes) { item.Devices = map[string]int32{"tpu": 4} }))},
			want:    "a", message: "would add 2 nodes of tpus ",
		},
		"Phases": {
			reason:  "the pods of two phases use the same new node",
			podSets: []v1alpha1.PodSet{podSet(1, 1, named("model-initializer", v1alpha1.RoleModelInitializer)), podSet(1, 8)},
			workers: []Worker{expandable("a", nil, pool("h100", 4))},
			want:    "a", message: "would add 1 node of h100 ",
		},
		"Kinds": {
			reason:  "and so do pods of two kinds",
			podSets: []v1alpha1.PodSet{podSet(1, 2, named("launcher", v1alpha1.RoleLauncher)), podSet(1, 6)},
			workers: []Worker{expandable("a", nil, pool("h100", 4))},
			want:    "a", message: "would add 1 node of h100 ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "job", PodSets: test.podSets, Topology: test.topology, AddNodes: test.addNodes}
			var policies []Policy
			if test.scoring != nil {
				policies = []Policy{policy("p", 0, scoring(test.scoring...))}
			}
			got := Decide(job, policies, test.workers)
			check.Equal(t, test.want, got.Cluster, "%s: the worker: %s", test.reason, got.Message)
			if !strings.HasPrefix(got.Message, test.message) {
				t.Errorf("%s: the message is %q, want %q", test.reason, got.Message, test.message)
			}
			domain := ""
			if got.Domain != nil {
				domain = got.Domain.Value
			}
			check.Equal(t, test.domain, domain, "%s: the domain", test.reason)
			for _, line := range Explain(job, policies, test.workers) {
				if line.Cluster == got.Cluster && strings.Contains(line.Message, "would add") != strings.Contains(got.Message, "would add") {
					t.Errorf("the decision says %q, and the explanation %q", got.Message, line.Message)
				}
			}
		})
	}
}

// Nodes that have come do not count twice, whatever state they are in.
func TestAddable(t *testing.T) {
	group := func(nodes int32, labels ...string) v1alpha1.NodeGroup {
		g := v1alpha1.NodeGroup{Nodes: nodes, Labels: map[string]string{}}
		for _, value := range labels {
			g.Labels[poolLabel] = value
		}
		return g
	}
	for name, test := range map[string]struct {
		reason string
		groups []v1alpha1.NodeGroup
		status []v1alpha1.ExpandableStatus
		want   int
	}{
		"Empty":    {reason: "the pool is scaled to zero", want: 4},
		"Others":   {reason: "nodes of other pools do not count", groups: []v1alpha1.NodeGroup{group(3), group(2, "other")}, want: 4},
		"Some":     {reason: "nodes that are there count", groups: []v1alpha1.NodeGroup{group(1, "h100"), group(2, "h100")}, want: 1},
		"All":      {reason: "the pool is at its maximum", groups: []v1alpha1.NodeGroup{group(4, "h100")}},
		"TooMany":  {reason: "the maximum has been lowered", groups: []v1alpha1.NodeGroup{group(9, "h100")}},
		"Status":   {reason: "the manager also sees nodes that take no pods", groups: []v1alpha1.NodeGroup{group(1, "h100")}, status: []v1alpha1.ExpandableStatus{{Name: "h100", Nodes: 3}}, want: 1},
		"NotAsked": {reason: "the item is new", groups: []v1alpha1.NodeGroup{group(1, "h100")}, status: []v1alpha1.ExpandableStatus{{Name: "other", Nodes: 3}}, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.WorkerCluster{
				Spec:   v1alpha1.WorkerClusterSpec{Expandable: []v1alpha1.ExpandableNodes{pool("h100", 4, withLabel("zone", "z"))}},
				Status: v1alpha1.WorkerClusterStatus{NodeGroups: test.groups, Expandable: test.status},
			}
			var want []NodeGroup
			if test.want > 0 {
				want = []NodeGroup{{Labels: map[string]string{poolLabel: "h100", "zone": "z"}, Free: Resources{gpu: 8}, Count: test.want, Added: "h100"}}
			}
			check.Diff(t, want, AddableOf(cluster), test.reason)
		})
	}
}

// A job that waits for nodes holds them, on nodes that are there first, and keeps as much when they come.
func TestAddedNodesAreHeld(t *testing.T) {
	added := func(count int, gpus int64) NodeGroup {
		return NodeGroup{Free: Resources{gpu: gpus}, Count: count, Added: "h100"}
	}
	there := func(count int, gpus int64) NodeGroup { return NodeGroup{Free: Resources{gpu: gpus}, Count: count} }
	gang := []v1alpha1.PodSet{podSet(3, 8)}
	for name, test := range map[string]struct {
		nodes, want []NodeGroup
	}{
		"ToCome":   {nodes: []NodeGroup{there(1, 4), added(4, 8)}, want: []NodeGroup{there(1, 4), added(3, 0), added(1, 8)}},
		"OneCame":  {nodes: []NodeGroup{there(1, 4), there(1, 8), added(3, 8)}, want: []NodeGroup{there(1, 0), there(1, 4), added(2, 0), added(1, 8)}},
		"AllCame":  {nodes: []NodeGroup{there(1, 4), there(3, 8), added(1, 8)}, want: []NodeGroup{there(3, 0), there(1, 4), added(1, 8)}},
		"RoomCame": {nodes: []NodeGroup{there(4, 8), added(4, 8)}, want: []NodeGroup{there(3, 0), there(1, 8), added(4, 8)}},
	} {
		for how, reserve := range map[string]func(*Nodes, []v1alpha1.PodSet) *Nodes{"Reserve": (*Nodes).Reserve, "Spread": (*Nodes).Spread} {
			t.Run(name+how, func(t *testing.T) {
				rest := reserve(NewNodes(test.nodes), gang)
				check.Diff(t, NewNodes(test.want).Groups(), rest.Groups(), "what is left")
				check.Diff(t, NewNodes(test.want).Present().Groups(), rest.Present().Groups(), "what is left on nodes that are there")
			})
		}
	}
}

// What jobs behind a waiting gang get never includes nodes that the gang waits for.
func TestHoldKeepsNodesToAdd(t *testing.T) {
	nodes := NewNodes([]NodeGroup{gpuNodes(1, 0), {Free: Resources{gpu: 8}, Count: 2, Added: "p"}})
	empty := NewNodes([]NodeGroup{gpuNodes(1, 8), {Free: Resources{gpu: 8}, Count: 2, Added: "p"}})
	gang := []v1alpha1.PodSet{podSet(3, 8)}
	check.Equal(t, int64(2), nodes.Places(gang), "places")
	check.Equal(t, int64(0), nodes.Hold(gang, empty).Free(gpu), "what Hold leaves")
	check.Equal(t, int64(0), nodes.Close(gang, empty).Free(gpu), "what Close leaves")
	rest := nodes.Hold([]v1alpha1.PodSet{podSet(2, 8)}, empty)
	check.Equal(t, int64(0), rest.Free(gpu), "a gang that fits holds the nodes that it would get")
}

// Several workers with the same pools give results that are kept by the shape of their nodes.
func TestPresentHasItsOwnShape(t *testing.T) {
	w := []Worker{
		expandable("a", []NodeGroup{gpuNodes(1, 8)}, pool("h100", 4)), expandable("b", []NodeGroup{gpuNodes(1, 0)}, pool("h100", 4)),
		worker("c", 1, 0), {Name: "d", Nodes: NewNodes([]NodeGroup{{Free: Resources{gpu: 8}, Count: 1, Added: "p"}})},
	}
	if a := w[0].Nodes; a.shape == a.Present().shape || a.shape != w[1].Nodes.shape || a.Present().shape != w[1].Nodes.Present().shape {
		t.Error("results about nodes that are there and about all nodes are mixed up")
	}
	check.Equal(t, 0, w[3].Nodes.Present().Count(), "a worker without a node")
	lines := Explain(Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(1, 8)}}, nil, w)
	for i, want := range []string{"score ", "would add 1 node of h100", "needs a node", "would add 1 node of p"} {
		if !strings.HasPrefix(lines[i].Message, want) {
			t.Errorf("%s: %q, want %q", lines[i].Cluster, lines[i].Message, want)
		}
	}
}
