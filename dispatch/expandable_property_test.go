// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// expandable makes some nodes of a scene nodes that workers would have to add.
func (s scene) expandable(r random) scene {
	s.job.AddNodes = []v1alpha1.AddNodes{"", v1alpha1.AddNodesLast, v1alpha1.AddNodesByScore, v1alpha1.AddNodesNever}[r.IntN(4)]
	if r.IntN(4) == 0 {
		s.job.Topology = &Topology{Label: "zone", Required: r.IntN(2) == 0}
	}
	for i := range s.workers {
		for j := range s.nodes[i] {
			if r.IntN(2) == 0 {
				s.nodes[i][j].Added = []string{"p", "q"}[r.IntN(2)]
			}
		}
		s.workers[i].Nodes = NewNodes(s.nodes[i])
		s.workers[i].Pools = map[string]PoolPrice{"p": {Unit: Prices{gpu: 2}, Node: float64(r.IntN(3))}, "q": {Node: 1}}
	}
	return s
}

// present is the scene as if no worker could add a node.
func (s scene) present() scene {
	s.workers = slices.Clone(s.workers)
	for i := range s.workers {
		var there []NodeGroup
		for _, group := range s.nodes[i] {
			if group.Added == "" {
				there = append(there, group)
			}
		}
		s.workers[i].Nodes = NewNodes(there)
	}
	return s
}

// TestAddedNodesProperties: nodes to add change nothing where a worker has room without them, unless the policy says
// so. The order of the arguments and workers that were not chosen change nothing.
func TestAddedNodesProperties(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(1000) {
		s := newScene(seed).expandable(newRandom(seed + 1<<32))
		got, without := s.answer(), s.present().answer()
		check.Diff(t, got, s.answer(), fmt.Sprintf("seed %d: asked again, the answer is another", seed))
		check.Diff(t, got, s.shuffle(newRandom(seed)).answer(), fmt.Sprintf("seed %d: shuffled, the answer is another", seed))
		switch {
		case s.job.AddNodes == v1alpha1.AddNodesNever:
			counts["never"]++
			check.Diff(t, without, got, fmt.Sprintf("seed %d: nodes to add count, and the policy says Never", seed))
		case s.job.AddNodes != v1alpha1.AddNodesByScore && without.Cluster != "":
			counts["there"]++
			without.Explanation, got.Explanation = nil, nil
			check.Diff(t, without, got, fmt.Sprintf("seed %d: nodes to add count, and a worker has room", seed))
		case without.Cluster == "" && got.Cluster != "":
			counts["added"]++
			if !strings.HasPrefix(got.Message, "would add ") {
				t.Errorf("seed %d: no worker has room for the job, and it is placed: %s", seed, got.Message)
			}
		}
		for i := range s.workers {
			if s.workers[i].Name == got.Cluster {
				continue
			}
			rest := s
			rest.workers = slices.Delete(slices.Clone(s.workers), i, i+1)
			if again := Decide(rest.job, rest.policies, rest.workers); again.Cluster != got.Cluster {
				t.Fatalf("seed %d: without %s the job goes to %q instead of %q", seed, s.workers[i].Name, again.Cluster, got.Cluster)
			}
		}
	}
	for _, kind := range []string{"never", "there", "added"} {
		if counts[kind] < 50 {
			t.Errorf("only %d scenes of kind %q", counts[kind], kind)
		}
	}
}

// TestFewestNodesAreAdded: for pods that are alike and nodes that are alike, a worker adds as few as a full search
// does.
func TestFewestNodesAreAdded(t *testing.T) {
	counted := 0
	for seed := range uint64(2000) {
		r := newRandom(seed)
		there, podSets := r.nodes(3), r.podSets(1)
		to := r.nodes(1)[0]
		to.Added, to.Count = "p", 4
		fits := func(added int) bool {
			return exhaustive(podSets, append(slices.Clone(there), slices.Repeat([]NodeGroup{to}, added)...))
		}
		least := 0
		for least <= to.Count && !fits(least) {
			least++
		}
		w := Worker{Name: "w", Nodes: NewNodes(append(slices.Clone(there), to))}
		d := Decide(Job{UID: "job", PodSets: podSets}, nil, []Worker{w})
		switch {
		case least > to.Count:
			check.Equal(t, "", d.Cluster, "seed %d: %s", seed, d.Message)
		case least == 0:
			check.Equal(t, false, strings.Contains(d.Message, "would add"), "seed %d: there is room: %s", seed, d.Message)
		default:
			counted++
			check.Equal(t, int32(least), d.AddedNodes, "seed %d: nodes to add", seed)
			want := fmt.Sprintf("would add %d %s of p; ", least, plural("node", int64(least)))
			check.Equal(t, true, strings.HasPrefix(d.Message, want), "seed %d: says %q, want %q", seed, d.Message, want)
		}
	}
	if counted < 200 {
		t.Errorf("only %d workers had to add nodes", counted)
	}
}

// TestNoNodeIsPromisedTwice: jobs of equal pods come and go, and nodes of a pool come. The pods of all jobs always have
// places on the nodes that are there and those that may still come.
func TestNoNodeIsPromisedTwice(t *testing.T) {
	placed := 0
	for seed := range uint64(400) {
		r := newRandom(seed)
		there, template := r.nodes(2), r.nodes(1)[0]
		maximum, came := 1+r.IntN(3), 0
		kind := r.podSets(1)[0]
		var running []v1alpha1.PodSet
		all := func() (nodes []NodeGroup) {
			nodes = append(slices.Clone(there), slices.Repeat([]NodeGroup{template}, came)...)
			if maximum > came {
				to := template
				to.Added, to.Count = "p", maximum-came
				nodes = append(nodes, to)
			}
			return nodes
		}
		for range 10 {
			nodes := NewNodes(all())
			for i := range running {
				nodes = nodes.Spread(running[i : i+1])
			}
			kind.Count = 1 + r.Int32N(3)
			if Decide(Job{UID: "job", PodSets: []v1alpha1.PodSet{kind}}, nil, []Worker{{Name: "w", Nodes: nodes}}).Cluster != "" {
				running, placed = append(running, kind), placed+1
				if single := append(slices.Clone(there), slices.Repeat([]NodeGroup{template}, maximum)...); !exhaustive(running, single) {
					t.Fatalf("seed %d: no place for all of %v on %v", seed, running, single)
				}
			}
			switch r.IntN(4) {
			case 0:
				running = running[min(1, len(running)):]
			case 1:
				came = min(came+1, maximum)
			}
		}
	}
	if placed < 500 {
		t.Errorf("only %d jobs have been placed", placed)
	}
}
