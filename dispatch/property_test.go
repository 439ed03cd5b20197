// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestFitAgainstSearch: what Fit accepts does fit. For pods that are alike, what Fit rejects does not fit.
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

// TestFitMissRate measures how many gangs of mixed pods first-fit-decreasing misses. Its cases are small and tight, so
// the rate on real workers is lower.
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

// TestReserveTakesAll: if a gang fits, Reserve takes off all of it, and never more than is free. If it does not fit,
// Reserve never takes off more than the gang needs.
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

// TestNeverOverfilled places one job after another, and checks all of them with a full search.
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

// TestMoreNodesNeverHurt: with one more free node, pods that are alike still fit.
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

// scene is a case for Decide, made from a seed.
type scene struct {
	job      Job
	policies []Policy
	workers  []Worker
	nodes    [][]NodeGroup
	reads    Reads
}

func newScene(seed uint64) scene { return newRandom(seed).scene(types.UID(fmt.Sprint(seed))) }

func (r random) scene(uid types.UID) scene {
	s := scene{job: Job{UID: uid, PodSets: r.podSets(1 + r.IntN(3))}}
	for i := range s.job.PodSets {
		s.job.PodSets[i].Role = []v1alpha1.PodSetRole{v1alpha1.RoleTrainer, v1alpha1.RoleLauncher, v1alpha1.RoleModelInitializer}[r.IntN(3)]
	}
	if r.IntN(2) == 0 {
		s.policies = []Policy{
			policy("a", r.Int32N(2), toClusters(matching("region", "eu"))),
			policy("b", r.Int32N(2), forJobs(matching("team", "nlp"))),
			policy("c", r.Int32N(2)),
		}
		for i := range s.policies {
			s.policies[i].Spec.Scoring = r.scoring()
			if r.IntN(3) == 0 {
				s.policies[i].Spec.Clusters.Expression, s.policies[i].Expression = "by hand", fewerQueued(1+r.IntN(4))
			}
		}
		s.job.Previous = v1alpha1.ClusterName(fmt.Sprint("worker-", r.IntN(7)))
	}
	if r.IntN(4) == 0 {
		s.job.Annotations = map[string]string{v1alpha1.AnnotationClusters: []string{"region=eu", "region!=eu", "region in (", ""}[r.IntN(4)]}
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
			Price: Prices{gpu: float64(r.IntN(4)), corev1.ResourceCPU: float64(r.IntN(3)) / 10}, Queued: r.IntN(4),
		}
		if r.IntN(8) == 0 {
			w.NotReady = "Unreachable"
		}
		w.Data = r.workerData(3)
		s.workers = append(s.workers, w)
	}
	for range r.IntN(3) {
		s.reads.Scored = append(s.reads.Scored, r.uri())
	}
	if r.IntN(12) == 0 {
		s.reads.Required = append(s.reads.Required, r.uri())
	}
	s.job = s.job.reading(s.workers, s.reads)
	return s
}

// fewerQueued is an expression. It is true for workers with fewer queued jobs, and fails for workers with two.
type fewerQueued int

// For implements Expression.
func (most fewerQueued) For(*Job) func(*Worker) (bool, error) {
	return func(w *Worker) (bool, error) {
		if w.Queued == 2 {
			return false, errors.New("nobody knows")
		}
		return w.Queued < int(most), nil
	}
}

// Reads implements Expression.
func (fewerQueued) Reads(w *Worker) string { return fmt.Sprintf("worker.queued is %d", w.Queued) }

// scoring returns some scores with all settings. Without a ceiling, Price would depend on other workers.
func (r random) scoring() []v1alpha1.Score {
	var parts []v1alpha1.Score
	for _, i := range r.Perm(len(Scores))[:r.IntN(len(Scores)+1)] {
		parts = append(parts, v1alpha1.Score{
			Name: Scores[i].Name, Weight: 1 + r.Int32N(100),
			Ceiling: v1alpha1.Prices{gpu: resource.MustParse("3"), corev1.ResourceCPU: resource.MustParse("200m")},
			Order:   []v1alpha1.ClusterName{"worker-2", "worker-0", "worker-1"},
		})
	}
	return parts
}

// answer is the whole answer to a case, in a form that can be compared.
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

// shuffle changes the order of everything that has no order.
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

// check tests the properties of every answer.
func (s scene) check(t *testing.T, seed uint64) {
	t.Helper()
	got := s.answer()
	check.Diff(t, got, s.answer(), fmt.Sprintf("seed %d: asked again, the answer is another", seed))
	check.Diff(t, got, s.shuffle(newRandom(seed)).answer(), fmt.Sprintf("seed %d: shuffled, the answer is another", seed))
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
			if *line.Score < 0 || *line.Score > 100 || !strings.HasPrefix(line.Message, fmt.Sprintf("score %d: ", *line.Score)) {
				t.Errorf("seed %d: a score of %d with message %q", seed, *line.Score, line.Message)
			}
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
		// No argument has changed.
		if diff := cmp.Diff(newScene(seed), s, cmp.AllowUnexported(scene{}, Nodes{}, class{})); diff != "" {
			t.Fatalf("seed %d: the arguments have changed (-before +after):\n%s", seed, diff)
		}
	}
	for _, reason := range []string{
		v1alpha1.ReasonPlaced, v1alpha1.ReasonNoWorkers, v1alpha1.ReasonNoFit, v1alpha1.ReasonNameConflict, v1alpha1.ReasonRejected,
		v1alpha1.ReasonInvalidPin, v1alpha1.ReasonDataNotFound,
	} {
		if !reasons[reason] {
			t.Errorf("no case has the answer %s", reason)
		}
	}
}

// TestOthersChangeNothing: without a worker that was not chosen, whether it fits or not, the job gets the same worker,
// and the explanations of the others stay the same.
func TestOthersChangeNothing(t *testing.T) {
	moved := 0
	for seed := range uint64(2000) {
		s := newScene(seed)
		all := s.answer()
		for i := range s.workers {
			if s.workers[i].Name == all.Cluster {
				continue
			}
			rest := s
			rest.workers = slices.Delete(slices.Clone(s.workers), i, i+1)
			got := rest.answer()
			want := slices.DeleteFunc(slices.Clone(all.Explanation), func(line v1alpha1.ClusterExplanation) bool {
				return line.Cluster == s.workers[i].Name
			})
			if got.Cluster != all.Cluster {
				t.Fatalf("seed %d: without %s the job goes to %q instead of %q", seed, s.workers[i].Name, got.Cluster, all.Cluster)
			}
			if diff := cmp.Diff(want, got.Explanation, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d: without %s something else is said of the others (-with +without):\n%s", seed, s.workers[i].Name, diff)
			}
			moved++
		}
	}
	if moved < 1000 {
		t.Errorf("only %d workers have been left out", moved)
	}
}

// TestWeightsAreMonotone: more weight on a score never takes the job away from the worker with the highest such score.
func TestWeightsAreMonotone(t *testing.T) {
	raised := 0
	for seed := range uint64(2000) {
		s := newScene(seed)
		for i := range s.policies {
			s.policies[i].Spec.Scoring = newRandom(seed).scoring()
		}
		d := Decide(s.job, s.policies, s.workers)
		if d.Cluster == "" || d.Policy == nil {
			continue
		}
		before := s.scores()
		for i := range d.Policy.Spec.Scoring {
			name := d.Policy.Spec.Scoring[i].Name
			winner := before[d.Cluster]
			best := true
			for _, other := range before {
				best = best && winner[name] >= other[name]
			}
			if !best {
				continue
			}
			weight := d.Policy.Spec.Scoring[i].Weight
			d.Policy.Spec.Scoring[i].Weight = weight + 1 + newRandom(seed).Int32N(100)
			if after := Decide(s.job, s.policies, s.workers); after.Cluster != d.Cluster {
				t.Fatalf("seed %d: with more weight on %s, of which %s has the most, the job goes to %s: %v",
					seed, name, d.Cluster, after.Cluster, before)
			}
			d.Policy.Spec.Scoring[i].Weight = weight
			raised++
		}
	}
	if raised < 200 {
		t.Errorf("only %d weights have been raised", raised)
	}
}

// scores returns the parts of the score of each worker on which the job fits.
func (s scene) scores() map[v1alpha1.ClusterName]map[v1alpha1.ScoreName]points {
	f := newFilters(s.job, s.policies)
	prepared, result := newScores(f, s.workers), map[v1alpha1.ClusterName]map[v1alpha1.ScoreName]points{}
	for i := range s.workers {
		if w := &s.workers[i]; f.check(w) == fits {
			result[w.Name] = map[v1alpha1.ScoreName]points{}
			for i := range prepared.parts {
				part := &prepared.parts[i]
				result[w.Name][part.Name] = prepared.part(part, w)
			}
		}
	}
	return result
}

const gpu corev1.ResourceName = "nvidia.com/gpu"

// random makes cases that are small enough for a full search, and so tight that about half of them fit.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 0))} }

// nodes returns at most most nodes, one per group, with a few GPUs and CPUs. Some have no GPUs, some have taints.
func (r random) nodes(most int) []NodeGroup {
	nodes := make([]NodeGroup, 1+r.IntN(most))
	for i := range nodes {
		free := Resources{corev1.ResourceCPU: int64(1000 * r.IntN(9)), corev1.ResourcePods: int64(1 + r.IntN(8))}
		if r.IntN(5) > 0 {
			free[gpu] = int64(r.IntN(9))
		}
		nodes[i] = NodeGroup{
			Labels: map[string]string{"zone": []string{"a", "b"}[r.IntN(2)], corev1.LabelHostname: fmt.Sprint("node-", i)},
			Free:   free,
			Count:  1,
		}
		if r.IntN(5) == 0 {
			nodes[i].Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	return nodes
}

// podSets returns kinds of pods, with up to three pods each.
func (r random) podSets(kinds int) []v1alpha1.PodSet {
	sets := make([]v1alpha1.PodSet, kinds)
	for i := range sets {
		sets[i] = v1alpha1.PodSet{
			Name: fmt.Sprint("set-", i), Role: v1alpha1.RoleTrainer, Count: int32(1 + r.IntN(3)),
			Requests: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewQuantity(int64(r.IntN(5)), resource.DecimalSI),
				gpu:                *resource.NewQuantity(int64(r.IntN(6)), resource.DecimalSI),
			},
		}
		if r.IntN(4) == 0 {
			sets[i].NodeSelector = map[string]string{"zone": []string{"a", "b"}[r.IntN(2)]}
		}
		if r.IntN(3) == 0 {
			sets[i].Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		}
	}
	return sets
}

// exhaustive says whether every pod has a place. It tries all places.
func exhaustive(podSets []v1alpha1.PodSet, nodes []NodeGroup) bool {
	byPhase := [2][]v1alpha1.PodSet{}
	for _, set := range podSets {
		at := PhaseOf(&set)
		byPhase[at] = append(byPhase[at], slices.Repeat([]v1alpha1.PodSet{set}, int(set.Count))...)
	}
	free := make([]Resources, len(nodes))
	for i := range nodes {
		free[i] = Resources{}
		free[i].Add(nodes[i].Free)
	}
	return assign(byPhase[0], nodes, free) && assign(byPhase[1], nodes, free)
}

func assign(pods []v1alpha1.PodSet, nodes []NodeGroup, free []Resources) bool {
	if len(pods) == 0 {
		return true
	}
	need := FromList(pods[0].Requests)
	need[corev1.ResourcePods] = 1
	for i := range nodes {
		if !allows(&pods[0], &nodes[i]) || !covers(free[i], need) {
			continue
		}
		free[i].Sub(need)
		ok := assign(pods[1:], nodes, free)
		free[i].Add(need)
		if ok {
			return true
		}
	}
	return false
}

func covers(free, need Resources) bool {
	for name, amount := range need {
		if amount > 0 && free[name] < amount {
			return false
		}
	}
	return true
}

// allows checks the selectors and taints of the cases as the scheduler does.
func allows(set *v1alpha1.PodSet, node *NodeGroup) bool {
	for key, value := range set.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	return len(node.Taints) == 0 || len(set.Tolerations) > 0
}
