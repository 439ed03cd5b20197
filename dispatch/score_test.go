// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func scoring(parts ...v1alpha1.Score) func(*v1alpha1.DispatchPolicySpec) {
	return func(spec *v1alpha1.DispatchPolicySpec) { spec.Scoring = parts }
}

func score(name v1alpha1.ScoreName, weight int32) v1alpha1.Score {
	return v1alpha1.Score{Name: name, Weight: weight}
}

func priceWithCeiling(weight int32, gpuPrice string) v1alpha1.Score {
	return v1alpha1.Score{Name: v1alpha1.ScorePrice, Weight: weight, Ceiling: v1alpha1.Prices{gpu: resource.MustParse(gpuPrice)}}
}

func at(price float64) func(*Worker) { return func(w *Worker) { w.Price = Prices{gpu: price} } }

func queued(jobs int) func(*Worker) { return func(w *Worker) { w.Queued = jobs } }

// withNodes gives a worker other nodes. Each has 8 GPUs, and free says how many of them are free.
func withNodes(free ...int64) func(*Worker) {
	return func(w *Worker) {
		groups := make([]NodeGroup, len(free))
		for i := range free {
			groups[i] = gpuNodes(1, free[i])
		}
		w.Nodes, w.Allocatable = NewNodes(groups), Resources{gpu: 8 * int64(len(free))}
	}
}

func TestScoring(t *testing.T) {
	small, gang := []v1alpha1.PodSet{podSet(1, 1)}, []v1alpha1.PodSet{podSet(2, 8)}
	for name, test := range map[string]struct {
		reason  string
		scoring []v1alpha1.Score
		job     Job
		workers []Worker
		want    map[v1alpha1.ClusterName]string // The message of each worker.
		winner  v1alpha1.ClusterName
	}{
		"MostAllocatedFragment": {
			reason:  "a small job goes where it breaks no whole node, though another worker is fuller",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreMostAllocated, 1)}, job: Job{PodSets: small},
			workers: []Worker{
				worker("fragment", 0, 0, withNodes(1, 8, 8, 8)), worker("fuller", 0, 0, withNodes(8, 0, 0, 0)), worker("larger-fragment", 0, 0, withNodes(2, 8, 8, 8)),
			},
			want: map[v1alpha1.ClusterName]string{
				"fragment":        "score 81: MostAllocated 81", // 3/4 * 1 + 1/4 * (1 - 24/32)
				"fuller":          "score 29: MostAllocated 29", // 3/4 * 1/8 + 1/4 * (1 - 7/32)
				"larger-fragment": "score 43: MostAllocated 43",
			},
			winner: "fragment",
		},
		"MostAllocatedGang": {
			reason:  "whole nodes are filled anywhere, so the fuller worker wins, and the emptier stays for a larger gang",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreMostAllocated, 1)}, job: Job{PodSets: gang},
			workers: []Worker{worker("emptier", 0, 0, withNodes(8, 8, 8, 8)), worker("fuller", 0, 0, withNodes(8, 8, 0, 0))},
			want: map[v1alpha1.ClusterName]string{
				"emptier": "score 88: MostAllocated 88", "fuller": "score 100: MostAllocated 100",
			},
			winner: "fuller",
		},
		"MostAllocatedPartly": {
			reason:  "seven pods of two GPUs take three nodes with four free and half of another, and leave the larger ones alone",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreMostAllocated, 1)}, job: Job{PodSets: []v1alpha1.PodSet{podSet(7, 2)}},
			workers: []Worker{worker("a", 0, 0, withNodes(4, 4, 8, 4, 4))},
			want:    map[v1alpha1.ClusterName]string{"a": "score 84: MostAllocated 84"}, // 3/4 * 14/16 + 1/4 * 30/40
			winner:  "a",
		},
		"MostAllocatedLauncher": {
			reason:  "pods that take no GPUs break no node with GPUs",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreMostAllocated, 1)},
			job:     Job{PodSets: append([]v1alpha1.PodSet{podSet(1, 0, named("launcher", v1alpha1.RoleLauncher))}, gang...)},
			workers: []Worker{worker("a", 0, 0, withNodes(8, 8))},
			want:    map[v1alpha1.ClusterName]string{"a": "score 100: MostAllocated 100"},
			winner:  "a",
		},
		"PriceOfTheFleet": {
			reason:  "the dearest of the fleet is 0, also if it cannot be used, and what costs nothing is 100",
			scoring: []v1alpha1.Score{score(v1alpha1.ScorePrice, 1)}, job: Job{PodSets: gang},
			workers: []Worker{
				worker("cheap", 2, 8, at(1)), worker("dear", 2, 8, at(3)), worker("owned", 2, 8), worker("dearest", 2, 8, at(4), isNotReady),
			},
			want: map[v1alpha1.ClusterName]string{
				"cheap": "score 75: Price 75", "dear": "score 25: Price 25", "owned": "score 100: Price 100", "dearest": "Unreachable: dial tcp: timeout",
			},
			winner: "owned",
		},
		"PriceOfAnOwnRuntime": {
			reason:  "what the worker's runtime makes of the job is paid there",
			scoring: []v1alpha1.Score{score(v1alpha1.ScorePrice, 1)},
			job:     Job{PodSets: []v1alpha1.PodSet{podSet(1, 1)}, Own: ownOn(Variant{PodSets: []v1alpha1.PodSet{podSet(1, 4)}}, "cheap")},
			workers: []Worker{worker("cheap", 2, 8, at(10)), worker("dear", 2, 8, at(20)), worker("dearest", 2, 8, at(40))},
			want: map[v1alpha1.ClusterName]string{
				"cheap": `score 0: Price 0; the pods are counted as the worker's own ClusterTrainingRuntime "torch" makes them`,
				"dear":  "score 50: Price 50", "dearest": "score 0: Price 0",
			},
			winner: "dear",
		},
		"PriceWithCeiling": {
			reason:  "at the ceiling and above it is 0",
			scoring: []v1alpha1.Score{priceWithCeiling(1, "2")}, job: Job{PodSets: gang},
			workers: []Worker{worker("half", 2, 8, at(1)), worker("at", 2, 8, at(2)), worker("above", 2, 8, at(9))},
			want: map[v1alpha1.ClusterName]string{
				"half": "score 50: Price 50", "at": "score 0: Price 0", "above": "score 0: Price 0",
			},
			winner: "half",
		},
		"PriceOfNothing": {
			reason:  "where nobody asks anything there is nothing to prefer",
			scoring: []v1alpha1.Score{score(v1alpha1.ScorePrice, 1)}, job: Job{PodSets: gang},
			workers: []Worker{worker("a", 2, 8)},
			want:    map[v1alpha1.ClusterName]string{"a": "score 100: Price 100"}, winner: "a",
		},
		"QueueDepth": {
			reason:  "who has fewer jobs that do not run yet",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreQueueDepth, 1)}, job: Job{PodSets: gang},
			workers: []Worker{worker("a", 2, 8, queued(3)), worker("b", 2, 8, queued(1)), worker("c", 2, 8)},
			want: map[v1alpha1.ClusterName]string{
				"a": "score 25: QueueDepth 25", "b": "score 50: QueueDepth 50", "c": "score 100: QueueDepth 100",
			},
			winner: "c",
		},
		"Sticky": {
			reason:  "where the job ran before",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreSticky, 1)}, job: Job{PodSets: gang, Previous: "b"},
			workers: []Worker{worker("a", 9, 8), worker("b", 2, 8)},
			want:    map[v1alpha1.ClusterName]string{"a": "score 0: Sticky 0", "b": "score 100: Sticky 100"}, winner: "b",
		},
		"Weights": {
			reason:  "the total is the average by weight, rounded",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreLeastAllocated, 2), priceWithCeiling(1, "5")}, job: Job{PodSets: gang},
			workers: []Worker{worker("free", 10, 8, at(2)), worker("cheap", 4, 8, at(0))},
			want: map[v1alpha1.ClusterName]string{
				"free":  "score 73: LeastAllocated 80 x2, Price 60",
				"cheap": "score 67: LeastAllocated 50 x2, Price 100",
			},
			winner: "free",
		},
		"RoundingDecidesNothing": {
			reason:  "both are shown as 50, and one is better",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreQueueDepth, 100), priceWithCeiling(1, "100")}, job: Job{PodSets: gang},
			workers: []Worker{worker("a", 2, 8, queued(1), at(51)), worker("b", 2, 8, queued(1), at(50))},
			want: map[v1alpha1.ClusterName]string{
				"a": "score 50: QueueDepth 50 x100, Price 49", "b": "score 50: QueueDepth 50 x100, Price 50",
			},
			winner: "b",
		},
		"HalfAPercentDecides": {
			reason:  "both are shown as 50, and one has a GPU more",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreLeastAllocated, 1)}, job: Job{PodSets: small},
			workers: []Worker{
				worker("a", 0, 0, withNodes(slices.Repeat([]int64{8, 0}, 32)...)), worker("b", 0, 0, withNodes(append(slices.Repeat([]int64{8, 0}, 31), 8, 1)...)),
			},
			want: map[v1alpha1.ClusterName]string{
				"a": "score 50: LeastAllocated 50", "b": "score 50: LeastAllocated 50",
			},
			winner: "b",
		},
		"MostAllocatedQueued": {
			reason:  "of two workers that are almost as full the one goes first on which fewer jobs begin",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreMostAllocated, 1)}, job: Job{PodSets: gang},
			workers: []Worker{worker("fuller", 0, 0, withNodes(8, 8, 8, 8, 7), queued(2)), worker("emptier", 0, 0, withNodes(8, 8, 8, 8, 8))},
			want: map[v1alpha1.ClusterName]string{
				"fuller": "score 84: MostAllocated 84", "emptier": "score 85: MostAllocated 85",
			},
			winner: "emptier",
		},
		"MostAllocatedFragmentFirst": {
			reason:  "a fragment is worth more than some jobs that begin there",
			scoring: []v1alpha1.Score{score(v1alpha1.ScoreMostAllocated, 1)}, job: Job{PodSets: small},
			workers: []Worker{worker("fragment", 0, 0, withNodes(1, 8, 8, 8), queued(9)), worker("whole", 0, 0, withNodes(8, 8, 8, 8))},
			want: map[v1alpha1.ClusterName]string{
				"fragment": "score 72: MostAllocated 72", "whole": "score 10: MostAllocated 10",
			},
			winner: "fragment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			policies := []Policy{policy("p", 0, scoring(test.scoring...))}
			for uid := range 8 { // The hash of a tie must not matter.
				test.job.UID = types.UID(fmt.Sprintf("%d-8c4c-4a5d-a6a0-0f3d62ab5b2f", uid))
				got := map[v1alpha1.ClusterName]string{}
				for _, line := range Explain(test.job, policies, test.workers) {
					got[line.Cluster] = line.Message
				}
				check.Equal(t, len(test.want), len(got), "workers explained")
				for worker, message := range test.want {
					check.Equal(t, message, got[worker], "%s: %s", worker, test.reason)
				}
				if d := Decide(test.job, policies, test.workers); d.Cluster != test.winner {
					t.Errorf("the job goes to %q (%s), want %q: %s", d.Cluster, d.Message, test.winner, test.reason)
				}
				reverse(test.workers)
			}
		})
	}
}

// TestPriceUnits: prices are per core and GiB, not per millicore and byte.
func TestPriceUnits(t *testing.T) {
	set := podSet(2, 1, requests(corev1.ResourceList{
		gpu: resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	}))
	w := worker("a", 1, 8)
	w.Price = PricesOf(v1alpha1.Prices{
		gpu: resource.MustParse("2"), corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("0.0125"),
	})
	// 2 * 2 + 3 * 0.1 + 16 * 0.0125 = 4.5 an hour.
	ceiling := v1alpha1.Prices{
		gpu: resource.MustParse("4"), corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("25m"),
	}
	if got := newPricing(newGang([]v1alpha1.PodSet{set}), ceiling, nil); got.of(&w, got.gang, nil).score() != 50 || got.most < 8.999 || got.most > 9.001 {
		t.Errorf("score %d, at most %f an hour; want 50 and 9", got.of(&w, got.gang, nil), got.most)
	}
	if got := newPricing(newGang([]v1alpha1.PodSet{set}), v1alpha1.Prices{gpu: {}, corev1.ResourceCPU: {}, corev1.ResourceMemory: {}}, nil).of(&w, newGang([]v1alpha1.PodSet{set}), nil); got != 0 {
		t.Errorf("score %d, want 0: dearer than a ceiling of nothing", got)
	}
}

// TestMostAllocatedLeavesWholeNodes: after a stream of small jobs, MostAllocated leaves room for more gangs than
// LeastAllocated, and than a score of how full workers are. The fleets are half used by jobs of all sizes.
func TestMostAllocatedLeavesWholeNodes(t *testing.T) {
	rules := map[string][]v1alpha1.Score{
		"MostAllocated":  {score(v1alpha1.ScoreMostAllocated, 1)},
		"LeastAllocated": {score(v1alpha1.ScoreLeastAllocated, 1)},
	}
	gangs, nodes := map[string]int{}, map[string]int64{}
	for seed := range uint64(20) {
		for name, parts := range rules {
			r := newRandom(seed)
			workers := make([]Worker, 12)
			for i := range workers {
				free := make([]int64, 4)
				for j := range free {
					free[j] = []int64{8, 8, 8, 8, r.Int64N(8)}[r.IntN(5)]
				}
				workers[i] = worker(v1alpha1.ClusterName(fmt.Sprint("worker-", i)), 0, 0, withNodes(free...))
			}
			policies := []Policy{policy("p", 0, scoring(parts...))}
			place := func(uid string, sets []v1alpha1.PodSet) bool {
				d := Decide(Job{UID: types.UID(uid), PodSets: sets}, policies, workers)
				for i := range workers {
					if workers[i].Name == d.Cluster {
						workers[i].Nodes = workers[i].Nodes.Reserve(sets)
					}
				}
				return d.Cluster != ""
			}
			for i := range 30 {
				place(fmt.Sprint("small-", i), []v1alpha1.PodSet{podSet(1, 1+r.Int64N(3))})
			}
			for i := range workers {
				for _, group := range workers[i].Nodes.Groups() {
					if group.Free[gpu] == 8 {
						nodes[name] += int64(group.Count)
					}
				}
			}
			for i := 0; place(fmt.Sprint("gang-", i), []v1alpha1.PodSet{podSet(3, 8)}); i++ {
				gangs[name]++
			}
		}
	}
	t.Logf("whole nodes left: %v; gangs of three nodes placed: %v", nodes, gangs)
	if most, least := gangs["MostAllocated"], gangs["LeastAllocated"]; 3*most < 4*least {
		t.Errorf("%d gangs fit after MostAllocated and %d after LeastAllocated, want a third more at least", most, least)
	}
}

// TestEqualWorkersShareABurst: many equal jobs come at once. Each of several equal workers gets its share, whatever its
// number of nodes. A job makes its worker a little fuller, but this must not bring all following jobs there.
func TestEqualWorkersShareABurst(t *testing.T) {
	for nodes, cores := range map[int]int64{1: 400, 2: 200, 4: 96, 16: 96, 64: 1000} {
		for _, rule := range []v1alpha1.ScoreName{v1alpha1.ScoreMostAllocated, v1alpha1.ScoreLeastAllocated, v1alpha1.ScoreQueueDepth} {
			workers := make([]Worker, 2)
			for i := range workers {
				group := NodeGroup{Free: Resources{corev1.ResourceCPU: 1000 * cores, corev1.ResourcePods: 1000}, Count: nodes}
				workers[i] = Worker{
					Name: v1alpha1.ClusterName(fmt.Sprint("worker-", i)), Nodes: NewNodes([]NodeGroup{group}),
					Allocatable: Resources{corev1.ResourceCPU: 1000 * cores * int64(nodes)},
				}
			}
			policies := []Policy{policy("p", 0, scoring(score(rule, 1)))}
			sets := []v1alpha1.PodSet{podSet(1, 0, requests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}))}
			got := map[v1alpha1.ClusterName]int{}
			for i := range 200 {
				d := Decide(Job{UID: types.UID(fmt.Sprintf("%d-8c4c-4a5d-a6a0-0f3d62ab5b2f", i)), PodSets: sets}, policies, workers)
				got[d.Cluster]++
				for j := range workers {
					if workers[j].Name == d.Cluster { // As the manager counts until the pods are bound.
						workers[j].Nodes = workers[j].Nodes.Spread(sets)
						workers[j].Queued++
					}
				}
			}
			if got["worker-0"] < 80 || got["worker-1"] < 80 {
				t.Errorf("%s, %d nodes: of 200 equal jobs the workers got %v", rule, nodes, got)
			}
		}
	}
}

// TestScoresOfTheAPI: a policy may name each score that there is, and no other.
func TestScoresOfTheAPI(t *testing.T) {
	const path = "../api/v1alpha1/dispatchpolicy_scoring.go"
	source, err := os.ReadFile(path)
	check.Must(t, err)
	enum := regexp.MustCompile(`Enum=(\S+)\ntype ScoreName`).FindStringSubmatch(string(source))
	var names []string
	for i := range Scores {
		names = append(names, string(Scores[i].Name))
	}
	if got := strings.Join(names, ";"); enum == nil || got != enum[1] {
		t.Errorf("Scores has %s, and the enum of ScoreName in %s is %v", got, path, enum)
	}
}

// TestPreference: the order of the policy decides, whichever of its workers there are.
func TestPreference(t *testing.T) {
	order := v1alpha1.Score{Name: v1alpha1.ScorePreference, Order: []v1alpha1.ClusterName{"first", "second", "gone", "fourth"}}
	policy := Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Scoring: []v1alpha1.Score{order}}}}
	var workers []Worker
	want := map[v1alpha1.ClusterName]int32{"unlisted": 0, "fourth": 25, "second": 75, "first": 100}
	for _, name := range []v1alpha1.ClusterName{"unlisted", "fourth", "second", "first"} {
		workers = append(workers, Worker{Name: name, Nodes: NewNodes([]NodeGroup{gpuNodes(1, 8)})})
	}
	job := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(1, 1)}}
	for _, line := range Explain(job, []Policy{policy}, workers) {
		if line.Score == nil || *line.Score != want[line.Cluster] {
			t.Errorf("%s: score %v, want %d", line.Cluster, line.Score, want[line.Cluster])
		}
	}
	for len(workers) > 0 {
		last := len(workers) - 1
		if got := Decide(job, []Policy{policy}, workers); got.Cluster != workers[last].Name {
			t.Errorf("of %d workers %s gets the job", len(workers), got.Cluster)
		}
		workers = workers[:last]
	}
}

// TestNoMatchingNode: the reason tells a worker that needs room from a worker whose nodes can never take the job.
func TestNoMatchingNode(t *testing.T) {
	cpu := NodeGroup{Labels: map[string]string{"pool": "cpu"}, Free: Resources{corev1.ResourceCPU: 8000}, Count: 1}
	infra := NodeGroup{Free: Resources{gpu: 8}, Count: 1, Taints: []corev1.Taint{taint("dedicated", "infra", corev1.TaintEffectNoSchedule)}}
	for name, tc := range map[string]struct {
		reason  string
		podSets []v1alpha1.PodSet
		nodes   []NodeGroup
		want    string
	}{
		"Busy":     {reason: "an end of a job helps", podSets: []v1alpha1.PodSet{podSet(1, 8)}, nodes: []NodeGroup{gpuNodes(2, 0)}, want: v1alpha1.ReasonInsufficientResources},
		"TooFew":   {reason: "more such nodes help", podSets: []v1alpha1.PodSet{podSet(9, 8)}, nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonInsufficientResources},
		"NoNodes":  {reason: "the first node may be any", podSets: []v1alpha1.PodSet{podSet(1, 8)}, want: v1alpha1.ReasonInsufficientResources},
		"Selector": {reason: "no node matches it", podSets: []v1alpha1.PodSet{podSet(1, 1, onNodes(map[string]string{"gpu": "none"}))}, nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonNoMatchingNode},
		"Taint":    {reason: "the pods do not tolerate it", podSets: []v1alpha1.PodSet{podSet(1, 1)}, nodes: []NodeGroup{infra}, want: v1alpha1.ReasonNoMatchingNode},
		"Resource": {
			reason: "no node has it", podSets: []v1alpha1.PodSet{podSet(1, 0, requests(corev1.ResourceList{"amd.com/gpu": resource.MustParse("1")}))},
			nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonNoMatchingNode,
		},
		"Elsewhere": {
			reason: "the selector leads to nodes without the resource", podSets: []v1alpha1.PodSet{podSet(1, 1, onNodes(map[string]string{"pool": "cpu"}))},
			nodes: []NodeGroup{gpuNodes(2, 8), cpu}, want: v1alpha1.ReasonNoMatchingNode,
		},
		"OneOfTwo": {
			reason: "both have to run", podSets: []v1alpha1.PodSet{podSet(1, 1), podSet(1, 0, named("other", v1alpha1.RoleTrainer), onNodes(map[string]string{"pool": "none"}))},
			nodes: []NodeGroup{gpuNodes(2, 8)}, want: v1alpha1.ReasonNoMatchingNode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := Worker{Name: "west", Nodes: NewNodes(tc.nodes)}
			job := Job{UID: "job", PodSets: tc.podSets}
			lines := Explain(job, nil, []Worker{w})
			if got := lines[0].Reason; got != tc.want {
				t.Errorf("the reason is %s (%s), want %s: %s", got, lines[0].Message, tc.want, tc.reason)
			}
			check.Equal(t, tc.want, Nearest(job, nil, []Worker{w}).Reason,
				"the reason of the nearest worker: %s", tc.reason)
		})
	}
}
