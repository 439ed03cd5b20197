// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// tape is a source that reads each number from one byte, so that a fuzzer which changes a byte changes one choice.
// After the last byte it returns random numbers.
type tape struct {
	bytes []byte
	rest  *rand.PCG
}

// Uint64 implements rand.Source.
func (t *tape) Uint64() uint64 {
	if len(t.bytes) == 0 {
		return t.rest.Uint64()
	}
	b := t.bytes[0]
	t.bytes = t.bytes[1:]
	return uint64(b) * 0x0101010101010101 // All bits depend on the byte.
}

func newTape(data []byte) random {
	return random{rand.New(&tape{bytes: data, rest: rand.NewPCG(uint64(len(data)), 0)})}
}

// seedTapes are the first inputs of the fuzzers.
func seedTapes(add func(data []byte)) {
	add(nil)
	for seed := range uint64(8) {
		data := make([]byte, 200)
		for i, source := 0, rand.NewPCG(seed, 1); i < len(data); i++ {
			data[i] = byte(source.Uint64())
		}
		add(data)
	}
}

// FuzzDecide looks for questions for which a property does not hold, with extreme amounts.
func FuzzDecide(f *testing.F) {
	seedTapes(func(data []byte) { f.Add(data, int64(8), int64(8), int32(2), 1, "gpu", "a100") })
	f.Add([]byte("\x02\x00\xff"), int64(-1), int64(1)<<62, int32(1)<<30, int(1)<<62, "", "\n=")
	f.Fuzz(func(t *testing.T, data []byte, free, request int64, count int32, nodes int, key, value string) {
		s := newTape(data).scene("job")
		extra := NodeGroup{Labels: map[string]string{key: value}, Free: Resources{gpu: free, corev1.ResourceMemory: free}, Count: nodes}
		for i := range s.workers {
			s.nodes[i] = append(s.nodes[i], extra)
			s.workers[i].Nodes = NewNodes(s.nodes[i])
		}
		set := podSet(count, request, named("extra", ""))
		if len(data)%2 == 0 {
			set.NodeSelector = map[string]string{key: value}
		}
		s.job.PodSets = append(s.job.PodSets, set)
		s.check(t, uint64(len(data)))
		s.checkHold(t)
	})
}

// checkHold checks that Hold never adds room for the jobs behind, and leaves nothing where the job takes everything.
func (s scene) checkHold(t *testing.T) {
	t.Helper()
	for i := range s.workers {
		n := s.workers[i].Nodes
		held, rest := n.Hold(s.job.PodSets, n), n.Reserve(s.job.PodSets)
		if held.Count() != n.Count() || rest.Count() != n.Count() {
			t.Errorf("%d nodes became %d and %d", n.Count(), held.Count(), rest.Count())
		}
		for _, name := range []corev1.ResourceName{gpu, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
			if held.Free(name) < 0 || held.Free(name) > rest.Free(name) || rest.Free(name) > n.Free(name) {
				t.Errorf("of %d %s free, %d remain, and %d for those behind", n.Free(name), name, rest.Free(name), held.Free(name))
			}
		}
		if got := n.Places(s.job.PodSets); got < 0 {
			t.Errorf("%d pods have a place", got)
		}
	}
}

// FuzzHold looks for nodes that a gang could use and Hold does not close, and for room that Hold adds.
func FuzzHold(f *testing.F) {
	seedTapes(func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) { checkClose(t, newTape(data)) })
}

// TestCloseIsTighterThanHold: Close leaves no more room than Hold, and no place for the gang.
func TestCloseIsTighterThanHold(t *testing.T) {
	for seed := range uint64(500) {
		checkClose(t, newRandom(seed))
	}
}

func checkClose(t *testing.T, r random) {
	t.Helper()
	y := r.newYard()
	for range 6 {
		y.start(r.small(), y.free, 1)
	}
	n, empty, gang := NewNodes(y.free), NewNodes(y.size), r.large()
	held, closed := n.Hold(gang, empty), n.Close(gang, empty)
	for _, name := range []corev1.ResourceName{gpu, corev1.ResourceCPU, corev1.ResourcePods} {
		if closed.Free(name) > held.Free(name) || held.Free(name) > n.Free(name) {
			t.Errorf("of %d %s free, %d remain where some nodes are closed, and %d where all are", n.Free(name), name, held.Free(name), closed.Free(name))
		}
	}
	if places := closed.Places(gang); places > 0 {
		t.Errorf("%d pods of the gang have a place on closed nodes", places)
	}
}

// FuzzPreempt looks for jobs that are stopped without need.
func FuzzPreempt(f *testing.F) {
	seedTapes(func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) { newTape(data).struggle("job").check(t, uint64(len(data))) })
}

// TestSequencesNeverOverfill: jobs of all kinds come and go on a few workers, where Decide places them. For the pods on
// a worker, a full search always finds places on single nodes, whichever phase each job is in.
func TestSequencesNeverOverfill(t *testing.T) {
	placed := 0
	for seed := range uint64(300) {
		r := newRandom(seed)
		workers, nodes := make([]Worker, 2), make([][]NodeGroup, 2)
		running := make([][][]v1alpha1.PodSet, 2) // Jobs of each worker.
		for i := range workers {
			nodes[i] = r.nodes(4)
			workers[i] = Worker{Name: v1alpha1.ClusterName(fmt.Sprint("worker-", i)), Nodes: NewNodes(nodes[i])}
		}
		for range 12 {
			job := Job{UID: "job", PodSets: r.gang()}
			d := Decide(job, nil, workers)
			if d.Cluster == "" {
				continue
			}
			placed++
			at := slices.IndexFunc(workers, func(w Worker) bool { return w.Name == d.Cluster })
			workers[at].Nodes = workers[at].Nodes.Reserve(job.PodSets)
			running[at] = append(running[at], job.PodSets)
			if !phasesFit(running[at], nil, nodes[at]) {
				t.Fatalf("seed %d: no place for all of %v on %v", seed, running[at], nodes[at])
			}
			if r.IntN(3) == 0 { // The first job ends. Free amounts are counted again.
				running[at] = running[at][1:]
				workers[at].Nodes = NewNodes(nodes[at])
				for _, podSets := range running[at] {
					workers[at].Nodes = workers[at].Nodes.Reserve(podSets)
				}
			}
		}
	}
	if placed < 500 {
		t.Errorf("only %d jobs have been placed", placed)
	}
}

// gang returns small pods of some kinds in both phases.
func (r random) gang() []v1alpha1.PodSet {
	podSets := r.podSets(1 + r.IntN(3))
	for i := range podSets {
		podSets[i].Count = 1 + r.Int32N(2)
		if r.IntN(3) == 0 {
			podSets[i].Role = v1alpha1.RoleModelInitializer
		}
	}
	return podSets
}

// phasesFit says whether the pods of all jobs have places, for all combinations of the jobs' phases.
func phasesFit(jobs [][]v1alpha1.PodSet, chosen []v1alpha1.PodSet, nodes []NodeGroup) bool {
	if len(jobs) == 0 {
		return exhaustive(chosen, nodes)
	}
	for phase := range 2 {
		pods := slices.Clone(chosen)
		for _, set := range jobs[0] {
			if PhaseOf(&set) == phase {
				set.Role = v1alpha1.RoleTrainer // All run at the same time.
				pods = append(pods, set)
			}
		}
		if !phasesFit(jobs[1:], pods, nodes) {
			return false
		}
	}
	return true
}

// TestExplanationNamesEveryWorker: Explain names up to maxExplanation workers, and drops workers that do not fit first.
func TestExplanationNamesEveryWorker(t *testing.T) {
	for _, count := range []int{0, 1, maxExplanation, maxExplanation + 7} {
		r := newRandom(uint64(count))
		job := Job{UID: "job", PodSets: r.podSets(1)}
		workers := make([]Worker, count)
		fit := map[v1alpha1.ClusterName]bool{}
		for i := range workers {
			workers[i] = Worker{Name: v1alpha1.ClusterName(fmt.Sprint("worker-", i)), Nodes: NewNodes(r.nodes(2))}
			fit[workers[i].Name] = Decide(job, nil, workers[i:i+1]).Cluster != ""
		}
		lines := Explain(job, nil, workers)
		if len(lines) != min(count, maxExplanation) {
			t.Errorf("%d lines for %d workers", len(lines), count)
		}
		named := map[v1alpha1.ClusterName]bool{}
		for _, line := range lines {
			if named[line.Cluster] = true; (line.Reason == v1alpha1.ReasonFits) != fit[line.Cluster] {
				t.Errorf("%s: %s, by itself it fits: %t", line.Cluster, line.Reason, fit[line.Cluster])
			}
		}
		for name, fits := range fit {
			if !named[name] && (fits || count <= maxExplanation) {
				t.Errorf("%s is not named among %d of %d", name, len(named), count)
			}
		}
	}
}
