// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// fleet returns workers of 64 nodes with 8 GPUs each, of which those that are used have fewer free. The nodes of a worker
// have so many different sets of labels.
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
	nodes := []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 4, 8, 90)}
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
	}{
		"idle":                     {labelSets: 4, free: idle, podSets: nodes},
		"busy":                     {labelSets: 4, free: busy, podSets: nodes},
		"busy, 64 label sets":      {labelSets: 64, free: busy, podSets: nodes},
		"busy, MPI":                {labelSets: 4, free: busy, podSets: mpi},
		"waits":                    {labelSets: 4, free: full, podSets: nodes},
		"waits, 64 label sets":     {labelSets: 64, free: full, podSets: nodes},
		"fragments, 64 label sets": {labelSets: 64, free: full, podSets: []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 400, 1, 2)}},
		"busy, MostAllocated":      {labelSets: 4, free: busy, podSets: nodes, scoring: most},
		"busy, scores, expression": {labelSets: 4, free: busy, podSets: nodes, scoring: all, expressed: true},
		"busy, 64 label sets, scores, expression": {labelSets: 64, free: busy, podSets: nodes, scoring: all, expressed: true},
	} {
		b.Run(name, func(b *testing.B) {
			workers := fleet(1000, bc.labelSets, bc.free)
			job := Job{UID: "0c6f5cb5-8c4c-4a5d-a6a0-0f3d62ab5b2f", PodSets: bc.podSets, Previous: "worker-7"}
			var policies []Policy
			if bc.scoring != nil {
				policies = []Policy{policy("p", 0, scoring(bc.scoring...), toClusters(&metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpExists}},
				}))}
			}
			if bc.expressed { // What an expression costs by itself is measured where it is compiled, and remembered.
				policies[0].Spec.Clusters.Expression, policies[0].Expression = "queued < 9", fewerQueued(9)
			}
			b.ReportAllocs()
			for b.Loop() {
				Decide(job, policies, workers)
			}
		})
	}
}

func BenchmarkExplain(b *testing.B) {
	workers := fleet(1000, 4, func(worker, node int) int64 { return int64((worker + node) % 8) })
	job := Job{UID: "uid", PodSets: []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 4, 8, 90)}}
	b.ReportAllocs()
	for b.Loop() {
		Explain(job, nil, workers)
	}
}

func BenchmarkNewNodes(b *testing.B) {
	worker := fleet(1, 4, func(worker, node int) int64 { return int64(node % 9) })[0]
	groups := worker.Nodes.Groups()
	b.ReportAllocs()
	for b.Loop() {
		NewNodes(groups)
	}
}

func BenchmarkReserve(b *testing.B) {
	worker := fleet(1, 4, func(worker, node int) int64 { return int64(node % 9) })[0]
	podSets := []v1alpha1.PodSet{gpuSet("node", v1alpha1.RoleTrainer, 4, 8, 90)}
	b.ReportAllocs()
	for b.Loop() {
		worker.Nodes.Reserve(podSets)
	}
}
