// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const (
	clique = "nvidia.com/gpu.clique"
	usage  = "must be required=LABEL or preferred=LABEL with one label of nodes, such as required=nvidia.com/gpu.clique"
)

func TestParseTopology(t *testing.T) {
	for text, test := range map[string]struct {
		reason string
		want   *Topology
		fault  string
	}{
		"required=" + clique: {reason: "the job runs in one domain or waits", want: &Topology{Label: clique, Required: true}},
		"preferred=rack":     {reason: "one domain is better than several", want: &Topology{Label: "rack"}},
		"rack":               {reason: "nobody knows how much it matters", fault: usage + `; it is "rack"`},
		"":                   {reason: "an empty annotation is a mistake", fault: usage + `; it is ""`},
		"wanted=rack":        {reason: "an unknown word", fault: usage + `; it is "wanted=rack"`},
		"Required=rack":      {reason: "words have one spelling", fault: usage + `; it is "Required=rack"`},
		"required=a,preferred=b": {
			reason: "a job has one topology", fault: usage + `; it is "required=a,preferred=b"`,
		},
		"required=rack=r1": {reason: "the domain is chosen", fault: usage + `; it is "required=rack=r1"`},
		"required=": {
			reason: "no label",
			fault:  usage + `: "" is not the key of a label: name part must be non-empty`,
		},
		"required=kubernetes.io/hostname": {
			reason: "nodes are counted in groups",
			fault: usage + ": label kubernetes.io/hostname names single nodes, which are not counted one by one; " +
				"name a label that several nodes share",
		},
		"required=" + strings.Repeat("x", 600): {reason: "a message must not repeat it", fault: usage + "; it has 609 bytes"},
	} {
		got, err := ParseTopology(text)
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		check.Equal(t, test.fault, fault, "%s: error of ParseTopology(%.40q)", test.reason, text)
		check.Diff(t, test.want, got, test.reason)
	}
}

// inDomain are nodes with the same number of free GPUs each, with a value of the label.
func inDomain(value string, count int, gpus int64) NodeGroup {
	return NodeGroup{Labels: map[string]string{clique: value}, Free: Resources{gpu: gpus}, Count: count}
}

func of(groups ...NodeGroup) func(*Worker) {
	return func(w *Worker) { w.Nodes = NewNodes(groups) }
}

func TestDecideDomain(t *testing.T) {
	const nothingThere = "; the only worker on which the job fits"
	first := named("model-initializer", v1alpha1.RoleModelInitializer)
	worker := func(name v1alpha1.ClusterName, groups ...NodeGroup) Worker { return worker(name, 0, 0, of(groups...)) }
	for name, test := range map[string]struct {
		reason    string
		preferred bool
		covers    []string
		podSets   []v1alpha1.PodSet
		avoided   v1alpha1.Domain
		workers   []Worker
		// want is "worker" or "worker/value". message is a part of the decision's message. why is the reason on the worker.
		want, message, why string
	}{
		"Tightest": {
			reason:  "the larger domains stay free for larger jobs",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			workers: []Worker{worker("a", inDomain("c1", 4, 8), inDomain("c2", 2, 8), inDomain("c3", 3, 8))},
			want:    "a/c2", message: nothingThere + "; in domain nvidia.com/gpu.clique=c2", why: v1alpha1.ReasonFits,
		},
		"FirstOfEqual": {
			reason:  "the same nodes give the same answer",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			workers: []Worker{worker("a", inDomain("c2", 2, 8), inDomain("c1", 2, 8))},
			want:    "a/c1", why: v1alpha1.ReasonFits,
		},
		"Scattered": {
			reason:  "the worker has room, and no domain has",
			podSets: []v1alpha1.PodSet{podSet(8, 8)},
			workers: []Worker{worker("a", inDomain("c1", 7, 8), inDomain("c1", 1, 0), inDomain("c2", 6, 8))},
			message: "a: in the best domain nvidia.com/gpu.clique=c1: lacks 8 nvidia.com/gpu on nodes with at least 8 free; " +
				"1 more such node would do; it has room for 7 of 8 pods, 8 nodes match its node selector",
			why: v1alpha1.ReasonInsufficientResources,
		},
		"Unlabelled": {
			reason:  "nodes without the label, or with an empty value, are in no domain",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			workers: []Worker{worker("a", gpuNodes(4, 8), inDomain("", 4, 8))},
			message: "a: no node has the label nvidia.com/gpu.clique of the job's topology", why: v1alpha1.ReasonNoDomain,
		},
		"NoNodes": {
			reason:  "labels are not what is missing",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			workers: []Worker{worker("a")},
			message: "a: the worker has no node that takes pods", why: v1alpha1.ReasonInsufficientResources,
		},
		"WrongDomains": {
			reason:  "no node that has the label has the resource",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			workers: []Worker{worker("a", gpuNodes(4, 8), NodeGroup{Labels: map[string]string{clique: "c1"}, Free: Resources{corev1.ResourceCPU: 1}, Count: 1})},
			message: "a: no node with the label nvidia.com/gpu.clique of the job's topology could take its pods", why: v1alpha1.ReasonNoDomain,
		},
		"Full": {
			reason:  "a full domain that could take the job comes before one that never could",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			workers: []Worker{worker("a", NodeGroup{Labels: map[string]string{clique: "c0"}, Free: Resources{corev1.ResourceCPU: 1}, Count: 9}, inDomain("c1", 2, 0))},
			message: "a: in the best domain nvidia.com/gpu.clique=c1: lacks 16 nvidia.com/gpu", why: v1alpha1.ReasonInsufficientResources,
		},
		"FullForOneKind": {
			reason:  "the domain without CPU nodes never takes the job, though it has more places",
			podSets: []v1alpha1.PodSet{podSet(2, 8), podSet(1, 0, named("evaluator", ""), requests(resources("0", "4")))},
			workers: []Worker{worker("a", inDomain("c0", 9, 8), inDomain("c1", 2, 0),
				NodeGroup{Labels: map[string]string{clique: "c1"}, Free: Resources{corev1.ResourceCPU: 8000}, Count: 1})},
			message: "a: in the best domain nvidia.com/gpu.clique=c1: node: lacks 16 nvidia.com/gpu", why: v1alpha1.ReasonInsufficientResources,
		},
		"OwnSelector": {
			reason:  "the value that the job selects itself is its only domain",
			podSets: []v1alpha1.PodSet{podSet(2, 8, onNodes(map[string]string{clique: "c3"}))},
			workers: []Worker{worker("a", inDomain("c1", 2, 8), inDomain("c3", 3, 8))},
			want:    "a/c3", why: v1alpha1.ReasonFits,
		},
		"TwoSelectors": {
			reason: "pods that select several values are never together",
			podSets: []v1alpha1.PodSet{
				podSet(1, 8, onNodes(map[string]string{clique: "c1"})),
				podSet(1, 4, named("evaluator", ""), onNodes(map[string]string{clique: "c2"})),
			},
			workers: []Worker{worker("a", inDomain("c1", 2, 8), inDomain("c2", 2, 8))},
			message: "a: the node selectors of its pods name several values of the label nvidia.com/gpu.clique of the job's topology",
			why:     v1alpha1.ReasonInsufficientResources,
		},
		"InitializersAnywhere": {
			reason:  "initializers run before the others, and need not be near them",
			podSets: []v1alpha1.PodSet{podSet(2, 4), podSet(1, 8, first)},
			workers: []Worker{worker("a", inDomain("c1", 2, 4), gpuNodes(1, 8))},
			want:    "a/c1", why: v1alpha1.ReasonFits,
		},
		"Covered": {
			reason:  "only the PodSets that are named belong together",
			podSets: []v1alpha1.PodSet{podSet(2, 4), podSet(2, 8, named("evaluator", ""))},
			covers:  []string{"node"},
			workers: []Worker{worker("a", inDomain("c1", 1, 8), inDomain("c2", 2, 8))},
			want:    "a/c1", why: v1alpha1.ReasonFits,
		},
		"NotCovered": {
			reason:  "all pods belong together",
			podSets: []v1alpha1.PodSet{podSet(2, 4), podSet(2, 8, named("evaluator", ""))},
			workers: []Worker{worker("a", inDomain("c1", 1, 8), inDomain("c2", 2, 8))},
			message: "a: in the best domain nvidia.com/gpu.clique=c2: ", why: v1alpha1.ReasonInsufficientResources,
		},
		"Avoided": {
			reason:  "the domain did not let the job run, and another one may",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			avoided: v1alpha1.Domain{Label: clique, Value: "c1"},
			workers: []Worker{worker("a", inDomain("c1", 2, 8), inDomain("c2", 3, 8))},
			want:    "a/c2", why: v1alpha1.ReasonFits,
		},
		"OnlyAvoided": {
			reason:  "the message says that the domain is left out",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			avoided: v1alpha1.Domain{Label: clique, Value: "c1"},
			workers: []Worker{worker("a", inDomain("c1", 2, 8), inDomain("c2", 1, 8))},
			message: "domain nvidia.com/gpu.clique=c1 is left out, because it did not let the job run in time",
			why:     v1alpha1.ReasonInsufficientResources,
		},
		"OtherLabelAvoided": {
			reason:  "the job has another topology by now",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			avoided: v1alpha1.Domain{Label: "rack", Value: "c1"},
			workers: []Worker{worker("a", inDomain("c1", 2, 8))},
			want:    "a/c1", why: v1alpha1.ReasonFits,
		},
		"Preferred": {
			reason:    "the worker with a domain comes first, whatever the scores are",
			preferred: true,
			podSets:   []v1alpha1.PodSet{podSet(2, 8)},
			workers:   []Worker{worker("a", gpuNodes(2, 8)), worker("b", inDomain("c1", 9, 8)), worker("c", gpuNodes(3, 8))},
			want:      "b/c1", message: "; in domain nvidia.com/gpu.clique=c1", why: v1alpha1.ReasonFits,
		},
		"PreferredInVain": {
			reason:    "without a domain the job may be anywhere",
			preferred: true,
			podSets:   []v1alpha1.PodSet{podSet(3, 8)},
			workers:   []Worker{worker("a", inDomain("c1", 2, 8), inDomain("c2", 2, 8))},
			want:      "a", message: "; no domain of nvidia.com/gpu.clique has room for its pods, which the job prefers", why: v1alpha1.ReasonFits,
		},
		"PreferredFull": {
			reason:    "the message is about the worker",
			preferred: true,
			podSets:   []v1alpha1.PodSet{podSet(5, 8)},
			workers:   []Worker{worker("a", inDomain("c1", 2, 8), inDomain("c2", 2, 8))},
			message:   "a: lacks 8 nvidia.com/gpu on nodes with at least 8 free", why: v1alpha1.ReasonInsufficientResources,
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{
				UID: "job", PodSets: test.podSets,
				Topology: &Topology{Label: clique, Required: !test.preferred, PodSets: test.covers},
			}
			if test.avoided != (v1alpha1.Domain{}) {
				job.Exclude("a", Exclusion{Reason: "AdmissionTimeout", Domain: test.avoided})
			}
			decision := Decide(job, nil, test.workers)
			got := string(decision.Cluster)
			if decision.Domain != nil {
				got += "/" + decision.Domain.Value
			}
			check.Equal(t, test.want, got, "%s: the decision is %+v", test.reason, decision)
			if !strings.Contains(decision.Message, test.message) {
				t.Errorf("%s: message %q, want it to have %q", test.reason, decision.Message, test.message)
			}
			check.Equal(t, test.why, Explain(job, nil, test.workers)[0].Reason, "%s: Explain", test.reason)
			nearest := Nearest(job, nil, test.workers)
			if decision.Cluster != "" {
				check.Diff(t, decision.Domain, nearest.Domain, test.reason)
			}
			if decision.Domain == nil {
				return
			}
			rest := test.workers[slices.IndexFunc(test.workers, func(w Worker) bool { return w.Name == decision.Cluster })].Nodes
			if lack := rest.Fit(job.PodSetsIn(decision.Cluster, decision.Domain)); lack != nil {
				t.Errorf("%s: the demand in the domain does not fit: %s", test.reason, lack.Message)
			}
		})
	}
}

// TestDomainsAgainstSearch: a gang of equal pods has a domain exactly if a full search finds places for it in one.
func TestDomainsAgainstSearch(t *testing.T) {
	fitting := 0
	for seed := range uint64(4000) {
		r := newRandom(seed)
		groups, podSets := r.nodes(6), r.podSets(1)
		if r.IntN(3) == 0 {
			podSets = append(podSets, podSet(1, int64(r.IntN(4)), named("model-initializer", v1alpha1.RoleModelInitializer)))
		}
		values := []string{"", "r1", "r2", "r3"}
		for i := range groups {
			groups[i].Labels["rack"] = values[r.IntN(len(values))]
		}
		topology := &Topology{Label: "rack", Required: true}
		job := Job{UID: "job", PodSets: podSets, Topology: topology}
		decision := Decide(job, nil, []Worker{{Name: "a", Nodes: NewNodes(groups)}})
		var domains []string
		for _, value := range values[1:] {
			if exhaustive(topology.within(podSets, value), groups) {
				domains = append(domains, value)
			}
		}
		switch {
		case (decision.Cluster != "") != (len(domains) > 0):
			t.Fatalf("seed %d: decided %+v, and the domains that fit are %v\nnodes %v\npodSets %v", seed, decision, domains, groups, podSets)
		case decision.Cluster != "" && !slices.Contains(domains, decision.Domain.Value):
			t.Fatalf("seed %d: domain %v, want one of %v", seed, decision.Domain, domains)
		case decision.Cluster != "":
			fitting++
		}
		if lines := Explain(job, nil, []Worker{{Name: "a", Nodes: NewNodes(groups)}}); len(lines[0].Message) > maxMessage {
			t.Fatalf("seed %d: the message has %d bytes", seed, len(lines[0].Message))
		}
	}
	if fitting < 500 {
		t.Errorf("only %d gangs have a domain", fitting)
	}
}

// TestManyDomains: a label with very many values costs about as much as a few values.
func TestManyDomains(t *testing.T) {
	const nodes = 5000
	groups := make([]NodeGroup, nodes)
	for i := range groups {
		groups[i] = NodeGroup{
			Labels: map[string]string{"serial": fmt.Sprint(i)}, Count: 1,
			Free: Resources{gpu: 8, corev1.ResourceCPU: int64(1000 * (i % 50))},
		}
	}
	w := Worker{Name: "a", Nodes: NewNodes(groups)}
	// Both kinds fit alone on each node, and never together. So every domain would be searched.
	job := Job{
		UID: "job", Topology: &Topology{Label: "serial", Required: true},
		PodSets: []v1alpha1.PodSet{podSet(1, 8), podSet(1, 1, named("evaluator", ""))},
	}
	if d := Decide(job, nil, []Worker{w}); d.Cluster != "" {
		t.Fatalf("decided %+v", d)
	}
	searched := testing.AllocsPerRun(1, func() { Decide(job, nil, []Worker{w}) })
	if searched > 4*nodes {
		t.Errorf("a decision among %d domains makes %.0f allocations", nodes, searched)
	}
}

// TestPreemptInDomain: jobs are stopped where their room is in one domain.
func TestPreemptInDomain(t *testing.T) {
	site := tenants{
		nodes: []NodeGroup{inDomain("c1", 1, 8), inDomain("c1", 1, 8), inDomain("c2", 1, 8), inDomain("c2", 1, 8)},
		jobs: []tenant{
			victim("x", 0, 1, 8, 0, 0, 0), victim("y", 0, 2, 0, 0, 8, 0), victim("z", 9, 3, 0, 8, 0, 0),
		},
	}
	job := Job{UID: "job", Priority: 1, PodSets: []v1alpha1.PodSet{podSet(2, 8)}, Topology: &Topology{Label: clique, Required: true}}
	got, ok := Preempt(job, []Policy{policy("p", 0, preempting)}, []Worker{site.worker("a")},
		func(v1alpha1.ClusterName) Occupancy { return site })
	if !ok || len(got.Victims) != 1 || got.Victims[0].UID != "y" {
		t.Errorf("Preempt = %+v, %t; only without y there is room in one domain", got, ok)
	}
}

// TestHoldInDomain: jobs behind a job that waits for a domain get what it does not need in the domain with the most
// places, of those that are large enough.
func TestHoldInDomain(t *testing.T) {
	now := Worker{Name: "a", Nodes: NewNodes([]NodeGroup{inDomain("c1", 2, 8), inDomain("c2", 1, 8), inDomain("c2", 2, 0)})}
	empty := NewNodes([]NodeGroup{inDomain("c1", 2, 8), inDomain("c2", 3, 8)})
	job := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(3, 8)}, Topology: &Topology{Label: clique, Required: true}}
	held := now.NodesFor(&job).Hold(now.DemandToHold(&job, empty), empty)
	check.Equal(t, int64(16), held.Free(gpu), "GPUs for jobs behind: only c2 is large enough for the job")
	check.Equal(t, int64(2), now.PlacesFor(&job), "places, in the best domain now")
}

// TestDomainBesideQuota: where only the quota of the worker's Kueue counts for a job, its domain has to have room.
func TestDomainBesideQuota(t *testing.T) {
	for name, test := range map[string]struct {
		reason   string
		required bool
		want     v1alpha1.ClusterName
	}{
		"Required":  {reason: "a domain is nodes", required: true},
		"Preferred": {reason: "nodes do not count", want: "a"},
	} {
		job := inQueue(podSet(3, 8))
		job.Topology = &Topology{Label: clique, Required: test.required}
		nodes := NewNodes([]NodeGroup{inDomain("c1", 2, 8), inDomain("c2", 2, 8)}).WithQuota(teamQuota(flavorQuota{name: "h100", nominal: 80}), true)
		got := Decide(job, nil, []Worker{{Name: "a", Nodes: nodes}})
		check.Equal(t, test.want, got.Cluster, "%s, %s: %s", name, test.reason, got.Message)
	}
}

// TestTopologyMakesClasses: jobs with other topologies do not share decisions.
func TestTopologyMakesClasses(t *testing.T) {
	seen := map[string]types.UID{}
	for uid, job := range map[types.UID]Job{
		"none":      {},
		"required":  {Topology: &Topology{Label: "rack", Required: true}},
		"preferred": {Topology: &Topology{Label: "rack"}},
		"covers":    {Topology: &Topology{Label: "rack", PodSets: []string{"node"}}},
		"avoids":    {Topology: &Topology{Label: "rack"}, Excluded: map[v1alpha1.ClusterName]Exclusion{"a": {Domain: v1alpha1.Domain{Label: "rack", Value: "r"}}}},
		"excludes":  {Topology: &Topology{Label: "rack"}, Excluded: map[v1alpha1.ClusterName]Exclusion{"a": {}}},
	} {
		job.UID = uid
		if other, is := seen[job.Kind()]; is {
			t.Errorf("jobs %s and %s are of one kind", uid, other)
		}
		seen[job.Kind()] = uid
	}
}
