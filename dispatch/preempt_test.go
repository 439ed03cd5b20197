// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// tenant is a job on a worker, with what it takes on each node.
type tenant struct {
	Victim
	takes []Resources
}

// tenants are a worker's nodes without jobs, and its jobs. They implement Occupancy.
type tenants struct {
	nodes []NodeGroup
	jobs  []tenant
}

// Victims implements Occupancy.
func (o tenants) Victims() []Victim {
	victims := make([]Victim, len(o.jobs))
	for i := range o.jobs {
		victims[i] = o.jobs[i].Victim
	}
	return victims
}

// Without implements Occupancy.
func (o tenants) Without(gone []types.UID) *Nodes {
	nodes := make([]NodeGroup, len(o.nodes))
	for i := range nodes {
		free := Resources{}
		free.Add(o.nodes[i].Free)
		for _, job := range o.jobs {
			if !slices.Contains(gone, job.UID) {
				free.Sub(job.takes[i])
			}
		}
		nodes[i] = o.nodes[i]
		nodes[i].Free = free
	}
	return NewNodes(nodes)
}

func (o tenants) worker(name v1alpha1.ClusterName) Worker {
	return Worker{Name: name, Nodes: o.Without(nil)}
}

// victim is a job with a priority that takes GPUs on each node. It was placed age minutes ago.
func victim(name string, priority int32, age int, gpus ...int64) tenant {
	job := tenant{Victim: Victim{
		UID: types.UID(name), Key: types.NamespacedName{Namespace: "ns", Name: name}, Priority: priority,
		Since: time.Unix(1e9, 0).Add(time.Duration(-age) * time.Minute),
	}}
	for _, amount := range gpus {
		job.takes = append(job.takes, Resources{gpu: amount})
	}
	return job
}

func slow(job tenant) tenant {
	job.Slow = true
	return job
}

func preempting(spec *v1alpha1.DispatchPolicySpec) { spec.Preemption = v1alpha1.PreemptLowerPriority }

func TestPreempt(t *testing.T) {
	two := []NodeGroup{gpuNodes(1, 8), gpuNodes(1, 8)}
	cordoned := func(w *Worker) { w.Cordoned = true }
	cases := map[string]struct {
		reason   string
		podSets  []v1alpha1.PodSet
		policies []Policy
		jobs     map[string][]tenant // Per worker of two nodes.
		change   map[string]func(*Worker)
		want     string
		victims  []string
	}{
		"LowestPriority": {
			reason: "each is enough, and that with the lowest priority goes",
			jobs:   map[string][]tenant{"w": {victim("a", 3, 0, 8, 0), victim("b", 2, 0, 0, 8)}},
			want:   "w", victims: []string{"b"},
		},
		"Youngest": {
			reason: "of equal priority the youngest has the least to lose",
			jobs:   map[string][]tenant{"w": {victim("a", 2, 1, 8, 0), victim("b", 2, 5, 0, 8)}},
			want:   "w", victims: []string{"a"},
		},
		"EqualPriority": {
			reason: "a job of equal priority stays",
			jobs:   map[string][]tenant{"w": {victim("a", 5, 0, 8, 0), victim("b", 5, 0, 0, 8)}},
		},
		"HigherPriority": {
			reason: "a job of higher priority stays, with all that is of no use without it",
			jobs:   map[string][]tenant{"w": {victim("a", 6, 0, 1, 1), victim("b", 0, 0, 7, 7)}},
		},
		"FewestFirst": {
			reason: "one job of higher priority is fewer than two of lower",
			jobs:   map[string][]tenant{"w": {victim("a", 1, 0, 4, 0), victim("b", 1, 0, 4, 0), victim("c", 4, 0, 0, 8)}},
			want:   "w", victims: []string{"c"},
		},
		"SlowLast": {
			reason: "two jobs that stop soon are better than one that may take for ever",
			jobs:   map[string][]tenant{"w": {victim("a", 1, 0, 4, 0), victim("b", 1, 0, 4, 0), slow(victim("c", 0, 0, 0, 8))}},
			want:   "w", victims: []string{"a", "b"},
		},
		"SlowElsewhere": {
			reason: "nor does it matter where they are",
			jobs:   map[string][]tenant{"v": {slow(victim("a", 0, 0, 8, 8))}, "w": {victim("b", 4, 0, 8, 8)}},
			want:   "w", victims: []string{"b"},
		},
		"SlowAlone": {
			reason: "there is no other",
			jobs:   map[string][]tenant{"w": {victim("a", 9, 0, 8, 0), slow(victim("b", 1, 0, 0, 8))}},
			want:   "w", victims: []string{"b"},
		},
		"Pair": {
			reason: "of the pairs that with the lowest priorities",
			jobs: map[string][]tenant{"w": {
				victim("a", 1, 0, 4, 0), victim("b", 4, 0, 4, 0), victim("c", 2, 0, 0, 4), victim("d", 3, 0, 0, 4),
			}},
			want: "w", victims: []string{"c", "d"},
		},
		"FewestOfAll": {
			reason: "the worker with the fewest victims",
			jobs: map[string][]tenant{
				"v": {victim("a", 0, 0, 4, 4), victim("b", 0, 0, 4, 4)},
				"w": {victim("c", 4, 9, 8, 0), victim("d", 4, 9, 0, 8)},
			},
			want: "w", victims: []string{"c"},
		},
		"Filtered": {
			reason: "no job is stopped where the other may not go",
			jobs: map[string][]tenant{
				"v": {victim("a", 0, 0, 8, 8)},
				"w": {victim("b", 4, 0, 8, 8)},
			},
			change: map[string]func(*Worker){"v": cordoned},
			want:   "w", victims: []string{"b"},
		},
		"FitsSomewhere": {
			reason: "a job that has room stops nobody",
			jobs:   map[string][]tenant{"v": {victim("a", 0, 0, 8, 8)}, "w": nil},
		},
		"HeldBack": {
			reason: "there is room, and the worker does not show it because it is held for another: that is not ours to take",
			jobs:   map[string][]tenant{"w": {victim("a", 0, 0, 8, 0)}},
			change: map[string]func(*Worker){"w": func(w *Worker) { w.Nodes = nil }},
		},
		"Never": {
			reason:   "preemption is off unless the policy says otherwise",
			policies: []Policy{policy("p", 0)},
			jobs:     map[string][]tenant{"w": {victim("a", 0, 0, 8, 8)}},
		},
		"TooLarge": {
			reason:  "nobody is stopped for a job that would not fit afterwards",
			podSets: []v1alpha1.PodSet{podSet(3, 8)},
			jobs:    map[string][]tenant{"w": {victim("a", 0, 0, 8, 8)}},
		},
		"Many": {
			reason:  "of more than two those are spared first that have the highest priority",
			podSets: []v1alpha1.PodSet{podSet(1, 7), podSet(1, 6, named("other", ""))},
			jobs: map[string][]tenant{"w": {
				victim("a", 1, 0, 3, 0), victim("b", 1, 1, 3, 0), victim("c", 2, 0, 2, 0),
				victim("d", 1, 0, 0, 3), victim("e", 1, 1, 0, 3), victim("f", 2, 0, 0, 2),
			}},
			want: "w", victims: []string{"a", "d", "b", "e", "c"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "job", Priority: 5, PodSets: tc.podSets}
			if job.PodSets == nil {
				job.PodSets = []v1alpha1.PodSet{podSet(1, 8)}
			}
			policies := tc.policies
			if policies == nil {
				policies = []Policy{policy("p", 0, preempting)}
			}
			var workers []Worker
			for worker, jobs := range tc.jobs {
				w := tenants{two, jobs}.worker(v1alpha1.ClusterName(worker))
				if change := tc.change[worker]; change != nil {
					change(&w)
				}
				workers = append(workers, w)
			}
			got, ok := Preempt(job, policies, workers, func(worker v1alpha1.ClusterName) Occupancy {
				return tenants{two, tc.jobs[string(worker)]}
			})
			var victims []string
			for _, v := range got.Victims {
				victims = append(victims, v.Key.Name)
			}
			if ok != (tc.want != "") || string(got.Cluster) != tc.want || !slices.Equal(victims, tc.victims) {
				t.Errorf("%s\nstops %v on %q, want %v on %q", tc.reason, victims, got.Cluster, tc.victims, tc.want)
			}
		})
	}
}

func TestPreemptionMessage(t *testing.T) {
	nodes := []NodeGroup{gpuNodes(1, 8)}
	jobs := []tenant{victim("a", 1, 0, 2), victim("b", 0, 2, 2), victim("c", 0, 1, 2), victim("d", 0, 3, 2)}
	job := Job{UID: "job", Priority: 5, PodSets: []v1alpha1.PodSet{podSet(1, 8)}}
	got, _ := Preempt(job, []Policy{policy("p", 0, preempting)}, []Worker{tenants{nodes, jobs}.worker("w")},
		func(v1alpha1.ClusterName) Occupancy { return tenants{nodes, jobs} })
	want := "preempts 4 jobs of lower priority on w: ns/c (priority 0), ns/b (priority 0), ns/d (priority 0) and 1 more"
	check.Diff(t, want, got.Message, "Message")
}

// struggle is a case of preemption.
type struggle struct {
	scene
	sites map[v1alpha1.ClusterName]tenants
}

func newStruggle(seed uint64) struggle { return newRandom(seed).struggle(types.UID(fmt.Sprint(seed))) }

func (r random) struggle(uid types.UID) struggle {
	s := struggle{sites: map[v1alpha1.ClusterName]tenants{}}
	s.job = Job{UID: uid, Priority: 2, PodSets: r.podSets(1 + r.IntN(2))}
	s.policies = []Policy{policy("p", 0, preempting)}
	for i := range 1 + r.IntN(3) {
		name := v1alpha1.ClusterName(fmt.Sprint("worker-", i))
		y := r.newYard()
		for range 12 {
			y.start(r.small(), y.free, 1)
		}
		site := tenants{nodes: y.size}
		for j, job := range y.running {
			t := victim(fmt.Sprint(name, "-", j), r.Int32N(4), r.IntN(3))
			t.takes = job.takes
			site.jobs = append(site.jobs, t)
		}
		w := site.worker(name)
		w.Cordoned = r.IntN(6) == 0
		s.sites[name], s.workers = site, append(s.workers, w)
	}
	return s
}

func (s struggle) preempt() (Preemption, bool) {
	return Preempt(s.job, s.policies, s.workers, func(worker v1alpha1.ClusterName) Occupancy { return s.sites[worker] })
}

func (s struggle) reorder(r random) struggle {
	other := s
	other.workers, other.sites = shuffled(r, s.workers), map[v1alpha1.ClusterName]tenants{}
	for name, site := range s.sites {
		other.sites[name] = tenants{site.nodes, shuffled(r, site.jobs)}
	}
	return other
}

func TestPreemptProperties(t *testing.T) {
	sizes := map[int]int{}
	for seed := range uint64(1500) {
		s := newStruggle(seed)
		sizes[s.check(t, seed)]++
	}
	t.Logf("cases by number of victims: %v", sizes)
	for n := range 4 {
		if sizes[n] < 10 {
			t.Errorf("only %d cases have %d victims", sizes[n], n)
		}
	}
}

// check tests the properties of every answer, and returns how many jobs are stopped.
func (s struggle) check(t *testing.T, seed uint64) (victims int) {
	t.Helper()
	got, ok := s.preempt()
	again, _ := s.reorder(newRandom(seed)).preempt()
	if diff := cmp.Diff(got, again); diff != "" {
		t.Fatalf("seed %d: in another order, others are stopped (-first +second):\n%s", seed, diff)
	}
	if !ok {
		s.checkNone(t, seed)
		return 0
	}
	var uids []types.UID
	for _, v := range got.Victims {
		uids = append(uids, v.UID)
		if v.Priority >= s.job.Priority {
			t.Fatalf("seed %d: stops a job of priority %d", seed, v.Priority)
		}
	}
	at := slices.IndexFunc(s.workers, func(w Worker) bool { return w.Name == got.Cluster })
	if s.workers[at].Cordoned {
		t.Fatalf("seed %d: stops jobs on a worker that is cordoned", seed)
	}
	w := s.workers[at]
	if w.Nodes = s.sites[w.Name].Without(uids); Decide(s.job, s.policies, []Worker{w}).Cluster == "" {
		t.Fatalf("seed %d: the job does not fit when all are stopped: %s", seed, got.Message)
	}
	for i := range uids {
		fewer := slices.Delete(slices.Clone(uids), i, i+1)
		if s.sites[w.Name].Without(fewer).Fit(s.job.PodSets) == nil {
			t.Fatalf("seed %d: %s need not be stopped: %s", seed, uids[i], got.Message)
		}
	}
	return len(uids)
}

// checkNone checks that no set of victims would help, or that the job needs none.
func (s struggle) checkNone(t *testing.T, seed uint64) {
	t.Helper()
	if Decide(s.job, s.policies, s.workers).Cluster != "" {
		return
	}
	if fewest := s.smallest(99); fewest >= 0 {
		t.Fatalf("seed %d: stops nobody, and %d would do", seed, fewest)
	}
}

// smallest is the number of victims in the smallest set of at most most, on any worker. -1: there is no such set.
func (s struggle) smallest(most int) int {
	fewest := -1
	for i := range s.workers {
		if s.workers[i].Cordoned {
			continue
		}
		site := s.sites[s.workers[i].Name]
		var lower []types.UID
		for _, v := range site.Victims() {
			if v.Priority < s.job.Priority {
				lower = append(lower, v.UID)
			}
		}
		for n := 1; n <= min(most, len(lower)) && (fewest < 0 || n < fewest); n++ {
			if site.anySet(s.job.PodSets, lower, nil, n) {
				fewest = n
			}
		}
	}
	return fewest
}

// anySet says whether the pods fit without some n of the jobs. The jobs in gone have ended too.
func (o tenants) anySet(podSets []v1alpha1.PodSet, from, gone []types.UID, n int) bool {
	if n == 0 {
		return o.Without(gone).Fit(podSets) == nil
	}
	for i := range from {
		if o.anySet(podSets, from[i+1:], append(slices.Clone(gone), from[i]), n-1) {
			return true
		}
	}
	return false
}

// TestPreemptExcess measures how many more jobs than necessary are stopped, if more than two are necessary.
func TestPreemptExcess(t *testing.T) {
	sets, larger, excess, needed := 0, 0, 0, 0
	for seed := range uint64(2500) {
		s := newStruggle(seed)
		for i := range s.job.PodSets {
			s.job.PodSets[i].Count++
		}
		got, ok := s.preempt()
		if !ok {
			continue
		}
		fewest := s.smallest(len(got.Victims))
		if len(got.Victims) <= 3 && fewest < len(got.Victims) && fewest <= 2 {
			t.Fatalf("seed %d: stops %d jobs, and %d would do", seed, len(got.Victims), fewest)
		}
		if fewest > 2 {
			sets++
			needed += fewest
			if excess += len(got.Victims) - fewest; len(got.Victims) > fewest {
				larger++
			}
		}
	}
	t.Logf("%d sets of more than 2: %d larger than the smallest, %d victims where %d would do", sets, larger, needed+excess, needed)
	if sets < 50 || larger > sets/4 || excess > needed/10 {
		t.Errorf("%d of %d sets are larger than the smallest, by %d victims in all on top of %d", larger, sets, excess, needed)
	}
}
