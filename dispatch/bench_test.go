// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// fleet returns workers of 64 nodes with 8 GPUs each. free says how many of them are free. The nodes of a worker have
// labelSets different sets of labels.
func fleet(workers, labelSets int, free func(worker, node int) int64) []Worker {
	fleet := make([]Worker, workers)
	for w := range fleet {
		nodes := make([]NodeGroup, 64)
		for i := range nodes {
			gpus := free(w, i)
			nodes[i] = NodeGroup{
				Labels: map[string]string{
					"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", corev1.LabelHostname: fmt.Sprint("node-", i),
					"nvidia.com/gpu.product": "H100", "topology.kubernetes.io/rack": fmt.Sprint("rack-", i%labelSets),
				},
				Taints: []corev1.Taint{{Key: string(gpu), Effect: corev1.TaintEffectNoSchedule}},
				Free: Resources{
					corev1.ResourceCPU: 1000 * (8 + 12*gpus), corev1.ResourceMemory: (32 + 200*gpus) << 30,
					corev1.ResourcePods: 100 + int64(i), gpu: gpus,
				},
				Count: 1,
			}
		}
		fleet[w] = Worker{
			Name:        v1alpha1.ClusterName(fmt.Sprint("worker-", w)),
			Labels:      map[string]string{"region": fmt.Sprint("region-", w%4)},
			Nodes:       NewNodes(nodes),
			Allocatable: Resources{gpu: 64 * 8, corev1.ResourceCPU: 64 * 104000},
			Price:       Prices{gpu: 1 + float64(w%5), corev1.ResourceCPU: 0.02},
			Queued:      w % 2,
		}
	}
	return fleet
}

// withAddable returns the nodes with a number of nodes more that the worker can add.
func withAddable(nodes *Nodes, count int) *Nodes {
	if count == 0 {
		return nodes
	}
	groups := nodes.Groups()
	added := groups[0]
	added.Added, added.Count, added.Free = "pool", count, Resources{corev1.ResourceCPU: 104000, gpu: 8}
	return NewNodes(append(groups, added))
}

func gpuSet(name string, role v1alpha1.PodSetRole, count int32, gpus, cpus int64) v1alpha1.PodSet {
	return v1alpha1.PodSet{
		Name: name, Role: role, Count: count,
		Requests: corev1.ResourceList{
			gpu:                *resource.NewQuantity(gpus, resource.DecimalSI),
			corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI),
		},
		NodeSelector: map[string]string{"nvidia.com/gpu.product": "H100"},
		Tolerations:  []corev1.Toleration{{Key: string(gpu), Operator: corev1.TolerationOpExists}},
	}
}

func BenchmarkDecide(b *testing.B) {
	busy := func(worker, node int) int64 { return int64((worker + node) % 9) }
	full := func(worker, node int) int64 { return int64((worker + node) % 8) }
	idle := func(worker, node int) int64 { return 8 }
	// There is room for all pods of each kind alone, but not for both kinds. Only a placement finds that out.
	tight := func(worker, node int) int64 { return int64(node%2) * 6 }
	tightly := []v1alpha1.PodSet{
		gpuSet("large", v1alpha1.RoleTrainer, 30, 5, 2), gpuSet("small", "evaluator", 10, 2, 2),
	}
	nodes := []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 4, 8, 90)}
	mixed := []v1alpha1.PodSet{
		gpuSet("model", v1alpha1.RoleModelInitializer, 1, 0, 4), gpuSet("launcher", v1alpha1.RoleLauncher, 1, 0, 2),
		gpuSet("node", v1alpha1.RoleTrainer, 4, 8, 90), gpuSet("evaluator", "evaluator", 2, 4, 30),
	}
	for i := range mixed {
		affinity(expression("topology.kubernetes.io/rack", corev1.NodeSelectorOpNotIn, "rack-0", "rack-1"))(&mixed[i])
	}
	mpi := append([]v1alpha1.PodSet{gpuSet("launcher", v1alpha1.RoleLauncher, 1, 0, 2)}, nodes...)
	most := []v1alpha1.Score{score(v1alpha1.ScoreMostAllocated, 1)}
	all := []v1alpha1.Score{
		score(v1alpha1.ScoreLeastAllocated, 2), score(v1alpha1.ScoreMostAllocated, 1), score(v1alpha1.ScorePrice, 3),
		score(v1alpha1.ScoreQueueDepth, 1), score(v1alpha1.ScoreSticky, 1),
	}
	for name, bc := range map[string]struct {
		labelSets int
		free      func(worker, node int) int64
		podSets   []v1alpha1.PodSet
		scoring   []v1alpha1.Score
		expressed bool
		topology  *Topology
		addable   int // Nodes like the others that each worker can add.
	}{
		"idle":                     {labelSets: 4, free: idle, podSets: nodes},
		"busy":                     {labelSets: 4, free: busy, podSets: nodes},
		"busy, 64 label sets":      {labelSets: 64, free: busy, podSets: nodes},
		"busy, MPI":                {labelSets: 4, free: busy, podSets: mpi},
		"waits":                    {labelSets: 4, free: full, podSets: nodes},
		"waits, 64 label sets":     {labelSets: 64, free: full, podSets: nodes},
		"fragments, 64 label sets": {labelSets: 64, free: full, podSets: []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 400, 1, 2)}},
		"idle, mixed, affinity":    {labelSets: 64, free: idle, podSets: mixed},
		"busy, mixed, affinity":    {labelSets: 64, free: busy, podSets: mixed},
		"waits, mixed, affinity":   {labelSets: 64, free: full, podSets: mixed},
		"tight, mixed":             {labelSets: 4, free: tight, podSets: tightly},
		"busy, MostAllocated":      {labelSets: 4, free: busy, podSets: nodes, scoring: most},
		"busy, scores, expression": {labelSets: 4, free: busy, podSets: nodes, scoring: all, expressed: true},
		"idle, domains":            {labelSets: 4, free: idle, podSets: nodes, topology: &Topology{Label: "topology.kubernetes.io/rack", Required: true}},
		"waits, 64 domains":        {labelSets: 64, free: full, podSets: nodes, topology: &Topology{Label: "topology.kubernetes.io/rack", Required: true}},
		"waits, preferred":         {labelSets: 4, free: full, podSets: nodes, topology: &Topology{Label: "topology.kubernetes.io/rack"}},
		"idle, can add":            {labelSets: 4, free: idle, podSets: nodes, addable: 8},
		"waits, can add":           {labelSets: 4, free: full, podSets: nodes, addable: 8},
		"waits, cannot add enough": {labelSets: 4, free: full, podSets: nodes, addable: 2},
		"busy, 64 label sets, scores, expression": {labelSets: 64, free: busy, podSets: nodes, scoring: all, expressed: true},
	} {
		b.Run(name, func(b *testing.B) {
			workers := fleet(1000, bc.labelSets, bc.free)
			for i := range workers {
				workers[i].Nodes = withAddable(workers[i].Nodes, bc.addable)
			}
			job := Job{UID: "0c6f5cb5-8c4c-4a5d-a6a0-0f3d62ab5b2f", PodSets: bc.podSets, Previous: "worker-7", Topology: bc.topology}
			var policies []Policy
			if bc.scoring != nil {
				policies = []Policy{policy("p", 0, scoring(bc.scoring...), toClusters(&metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpExists}},
				}))}
			}
			if bc.expressed { // Package expressions measures its cost. Answers are cached.
				policies[0].Spec.Clusters.Expression, policies[0].Expression = "queued < 9", fewerQueued(9)
			}
			measure(b, func() { Decide(job, policies, workers) })
		})
	}
}

func BenchmarkExplain(b *testing.B) {
	workers := fleet(1000, 4, func(worker, node int) int64 { return int64((worker + node) % 8) })
	job := Job{UID: "uid", PodSets: []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 4, 8, 90)}}
	measure(b, func() { Explain(job, nil, workers) })
}

func BenchmarkNewNodes(b *testing.B) {
	worker := fleet(1, 4, func(worker, node int) int64 { return int64(node % 9) })[0]
	groups := worker.Nodes.Groups()
	measure(b, func() { NewNodes(groups) })
}

func BenchmarkReserve(b *testing.B) {
	worker := fleet(1, 4, func(worker, node int) int64 { return int64(node % 9) })[0]
	podSets := []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 4, 8, 90)}
	measure(b, func() { worker.Nodes.Reserve(podSets) })
}

func BenchmarkHold(b *testing.B) {
	nodes := fleet(1, 4, func(worker, node int) int64 { return int64(node % 9) })[0].Nodes
	empty := fleet(1, 4, func(worker, node int) int64 { return 8 })[0].Nodes
	podSets := []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 16, 8, 90)}
	measure(b, func() { nodes.Hold(podSets, empty) })
}

// BenchmarkPreempt has 1,000 full workers with 64 jobs each. A gang fits on each worker if some of its jobs are
// stopped.
func BenchmarkPreempt(b *testing.B) {
	for name, nodes := range map[string]int32{"one victim": 1, "two victims": 2, "four victims": 4} {
		b.Run(name, func(b *testing.B) {
			workers := fleet(1000, 4, func(worker, node int) int64 { return 0 })
			free := fleet(1, 4, func(worker, node int) int64 { return 8 })[0].Nodes.Groups()
			var runs tenants
			for i := range free {
				runs.nodes = append(runs.nodes, free[i])
				job := victim(fmt.Sprint(i), int32(i%4), i)
				for range i {
					job.takes = append(job.takes, nil)
				}
				job.takes = append(job.takes, Resources{gpu: 8, corev1.ResourceCPU: 96000})
				job.takes = append(job.takes, make([]Resources, len(free)-i-1)...)
				runs.jobs = append(runs.jobs, job)
			}
			job := Job{UID: "uid", Priority: 9, PodSets: []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, nodes, 8, 90)}}
			policies := []Policy{policy("p", 0, preempting)}
			measure(b, func() { Preempt(job, policies, workers, func(v1alpha1.ClusterName) Occupancy { return runs }) })
		})
	}
}

// measure runs a benchmark. Besides the real time it reports the processor time, which does not grow on a busy machine.
func measure(b *testing.B, run func()) {
	b.ReportAllocs()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for b.Loop() {
		run()
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	spent := after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
}
