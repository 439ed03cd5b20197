// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestFitAgainstSearch: what is said to fit does fit, and for pods that are alike what is said not to fit does not.
func TestFitAgainstSearch(t *testing.T) {
	for seed := range uint64(4000) {
		r := newRandom(seed)
		kinds := 1 + r.IntN(3)
		nodes, podSets := r.nodes(5), r.podSets(kinds)
		got, want := NewNodes(nodes).Fit(podSets), exhaustive(podSets, nodes)
		switch {
		case got == nil && !want:
			t.Fatalf("seed %d: said to fit, and there is no assignment\nnodes %v\npodSets %v", seed, nodes, podSets)
		case got != nil && want && (kinds == 1 || got.PodSet != ""):
			t.Fatalf("seed %d: said not to fit (%s), and there is an assignment\nnodes %v\npodSets %v", seed, got.Message, nodes, podSets)
		}
	}
}

// TestFitMissRate measures how many gangs of mixed pods first-fit-decreasing misses. The cases are small and tight, so that
// real ones miss fewer.
func TestFitMissRate(t *testing.T) {
	for kinds, most := range map[int]float64{2: 0.005, 3: 0.01, 4: 0.02} {
		fit, missed := 0, 0
		for seed := range uint64(8000) {
			r := newRandom(seed)
			nodes, podSets := r.nodes(5), r.podSets(kinds)
			if exhaustive(podSets, nodes) {
				fit++
				if NewNodes(nodes).Fit(podSets) != nil {
					missed++
				}
			}
		}
		rate := float64(missed) / float64(fit)
		t.Logf("%d kinds of pods: missed %d of %d gangs that fit, %.2f %%", kinds, missed, fit, 100*rate)
		if rate > most {
			t.Errorf("%d kinds of pods: missed %.2f %% of the gangs that fit, want at most %.2f %%", kinds, 100*rate, 100*most)
		}
	}
}

// TestReserveTakesAll: if a gang fits, Reserve takes all of it off, never more than is free; otherwise never more than the
// gang needs.
func TestReserveTakesAll(t *testing.T) {
	for seed := range uint64(4000) {
		r := newRandom(seed)
		nodes, podSets := NewNodes(r.nodes(5)), r.podSets(1+r.IntN(3))
		rest := nodes.Reserve(podSets)
		for _, name := range []corev1.ResourceName{gpu, corev1.ResourceCPU, corev1.ResourcePods} {
			need := int64(0)
			for _, set := range podSets {
				amounts := FromList(set.Requests)
				amounts[corev1.ResourcePods] = 1
				need += amounts[name] * int64(set.Count)
			}
			taken := nodes.Free(name) - rest.Free(name)
			if taken < 0 || taken > need || nodes.Fit(podSets) == nil && taken != need {
				t.Fatalf("seed %d: took %d %s off, the gang needs %d, fits: %t", seed, taken, name, need, nodes.Fit(podSets) == nil)
			}
		}
		if rest.Count() != nodes.Count() {
			t.Fatalf("seed %d: %d nodes became %d", seed, nodes.Count(), rest.Count())
		}
	}
}

// TestNeverOverfilled places jobs one after the other, as a burst does, and checks their sum against a full search.
func TestNeverOverfilled(t *testing.T) {
	for seed := range uint64(500) {
		r := newRandom(seed)
		groups := r.nodes(3)
		nodes := NewNodes(groups)
		var placed []v1alpha1.PodSet
		for range 4 {
			podSets := r.podSets(1)
			if nodes.Fit(podSets) == nil {
				placed = append(placed, podSets...)
				nodes = nodes.Reserve(podSets)
			}
		}
		if !exhaustive(placed, groups) {
			t.Fatalf("seed %d: the jobs that were placed do not fit together\nnodes %v\nplaced %v", seed, groups, placed)
		}
	}
}

// TestMoreNodesNeverHurt: a free node more never makes pods that are alike unfit.
func TestMoreNodesNeverHurt(t *testing.T) {
	for seed := range uint64(4000) {
		r := newRandom(seed)
		nodes, podSets := r.nodes(5), r.podSets(1)
		more := append(slices.Clone(nodes), r.nodes(2)...)
		if NewNodes(nodes).Fit(podSets) == nil && NewNodes(more).Fit(podSets) != nil {
			t.Fatalf("seed %d: fits %v, and not %v", seed, nodes, more)
		}
	}
}

// scene is a whole question, made from a seed.
type scene struct {
	job      Job
	policies []v1alpha1.DispatchPolicy
	workers  []Worker
	nodes    [][]NodeGroup
}

func newScene(seed uint64) scene {
	r := newRandom(seed)
	s := scene{job: Job{UID: types.UID(fmt.Sprint(seed)), PodSets: r.podSets(1 + r.IntN(3))}}
	for i := range s.job.PodSets {
		s.job.PodSets[i].Role = []v1alpha1.PodSetRole{v1alpha1.RoleTrainer, v1alpha1.RoleLauncher, v1alpha1.RoleModelInitializer}[r.IntN(3)]
	}
	if r.IntN(2) == 0 {
		s.policies = []v1alpha1.DispatchPolicy{
			policy("a", r.Int32N(2), toClusters(matching("region", "eu"))),
			policy("b", r.Int32N(2), forJobs(matching("team", "nlp"))),
			policy("c", r.Int32N(2)),
		}
	}
	s.job.Excluded = map[v1alpha1.ClusterName]Exclusion{
		"worker-1": {Reason: v1alpha1.ReasonNameConflict, Message: "exists"},
		"worker-2": {Reason: v1alpha1.ReasonRejected, Message: "denied"},
	}
	for i := range r.IntN(7) {
		nodes := r.nodes(6)
		s.nodes = append(s.nodes, nodes)
		w := Worker{
			Name: v1alpha1.ClusterName(fmt.Sprint("worker-", i)), Nodes: NewNodes(nodes), Cordoned: r.IntN(8) == 0,
			Labels: map[string]string{"region": []string{"eu", "us"}[r.IntN(2)]}, Allocatable: Resources{gpu: 48, corev1.ResourceCPU: 48000},
		}
		if r.IntN(8) == 0 {
			w.NotReady = "Unreachable"
		}
		s.workers = append(s.workers, w)
	}
	return s
}

// answer is everything that is said to a question, in a form that can be compared.
type answer struct {
	Cluster         v1alpha1.ClusterName
	Reason, Message string
	Policy          string
	Explanation     []v1alpha1.ClusterExplanation
}

func (s scene) answer() answer {
	d := Decide(s.job, s.policies, s.workers)
	a := answer{Cluster: d.Cluster, Reason: d.Reason, Message: d.Message, Explanation: Explain(s.job, s.policies, s.workers)}
	if d.Policy != nil {
		a.Policy = d.Policy.Name
	}
	return a
}

// shuffle changes the order of all that has no order.
func (s scene) shuffle(r random) scene {
	s.job.PodSets = shuffled(r, s.job.PodSets)
	s.policies = shuffled(r, s.policies)
	workers := slices.Clone(s.workers)
	for i := range workers {
		workers[i].Nodes = NewNodes(shuffled(r, s.nodes[i]))
	}
	s.workers = shuffled(r, workers)
	return s
}

func shuffled[T any](r random, items []T) []T {
	items = slices.Clone(items)
	r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return items
}

func reverse[T any](items []T) { slices.Reverse(items) }

// check tests what holds for every question.
func (s scene) check(t *testing.T, seed uint64) {
	t.Helper()
	got := s.answer()
	if diff := cmp.Diff(got, s.answer()); diff != "" {
		t.Errorf("seed %d: asked again, the answer is another (-first +second):\n%s", seed, diff)
	}
	if diff := cmp.Diff(got, s.shuffle(newRandom(seed)).answer()); diff != "" {
		t.Errorf("seed %d: shuffled, the answer is another (-first +second):\n%s", seed, diff)
	}
	if len(got.Explanation) != len(s.workers) {
		t.Errorf("seed %d: %d workers and %d lines", seed, len(s.workers), len(got.Explanation))
	}
	best := int32(-1)
	for _, line := range got.Explanation {
		if (line.Reason == v1alpha1.ReasonFits) != (line.Score != nil) || line.Score == nil && line.Message == "" {
			t.Errorf("seed %d: line without score or message: %v", seed, line)
		}
		if line.Score != nil {
			best = max(best, *line.Score)
		}
	}
	if (best >= 0) != (got.Cluster != "") || (got.Reason == v1alpha1.ReasonPlaced) != (got.Cluster != "") || got.Message == "" {
		t.Errorf("seed %d: decision and explanation disagree: %+v", seed, got)
	}
	for _, line := range got.Explanation {
		if line.Cluster == got.Cluster && (line.Score == nil || *line.Score != best) {
			t.Errorf("seed %d: the winner is not the best: %+v", seed, got)
		}
	}
}

func TestDecideProperties(t *testing.T) {
	reasons := map[string]bool{}
	for seed := range uint64(2000) {
		s := newScene(seed)
		s.check(t, seed)
		reasons[s.answer().Reason] = true
		// Nothing that was given has changed.
		if diff := cmp.Diff(newScene(seed), s, cmp.AllowUnexported(scene{}, Nodes{}, class{})); diff != "" {
			t.Fatalf("seed %d: the arguments have changed (-before +after):\n%s", seed, diff)
		}
	}
	for _, reason := range []string{
		v1alpha1.ReasonPlaced, v1alpha1.ReasonNoWorkers, v1alpha1.ReasonNoFit, v1alpha1.ReasonNameConflict, v1alpha1.ReasonRejected,
	} {
		if !reasons[reason] {
			t.Errorf("no case has the answer %s", reason)
		}
	}
}

// FuzzDecide looks for questions that break what holds for every question, with amounts that are far from reasonable.
func FuzzDecide(f *testing.F) {
	f.Add(uint64(1), int64(8), int64(8), int32(2), 1, "gpu", "a100")
	f.Add(uint64(2), int64(-1), int64(1)<<62, int32(1)<<30, int(1)<<62, "", "\n=")
	f.Fuzz(func(t *testing.T, seed uint64, free, request int64, count int32, nodes int, key, value string) {
		s := newScene(seed)
		extra := NodeGroup{Labels: map[string]string{key: value}, Free: Resources{gpu: free, corev1.ResourceMemory: free}, Count: nodes}
		for i := range s.workers {
			s.nodes[i] = append(s.nodes[i], extra)
			s.workers[i].Nodes = NewNodes(s.nodes[i])
		}
		set := podSet(count, request, named("extra", ""))
		if seed%2 == 0 {
			set.NodeSelector = map[string]string{key: value}
		}
		s.job.PodSets = append(s.job.PodSets, set)
		s.check(t, seed)
	})
}
