// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	benchmarkJobs = 500
	// benchmarkWriters is how many requests a plain client sends at a time. The agent reconciles as many jobs at a time.
	benchmarkWriters = 10
)

// BenchmarkJobSets creates 500 TrainJobs at once and measures until each has its JobSet. In the same run it measures
// how long a plain client without a rate limit takes for the same writes: the TrainJobs and their JobSets. The cluster
// is only an API server. One run is one measurement: go test -bench JobSets -benchtime 1x ./cmd/worker-agent
func BenchmarkJobSets(b *testing.B) {
	cluster, c, binary := startBenchmark(b)
	agent, err := cluster.Run(b.Context(), "worker-agent", binary, "--kubeconfig="+cluster.KubeconfigPath, "--leader-elect=false",
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-bind-address=0")
	check.Must(b, err)
	round := 0
	for b.Loop() {
		round++
		ours := timed(func() {
			inParallel(b, func(i int) error { return c.Create(b.Context(), benchmarkJob(round, i)) })
			awaitJobSets(b, c, round)
		})
		cpu, memory := usage(b, agent.PID())
		var made jobsetv1alpha2.JobSetList
		check.Must(b, c.List(b.Context(), &made, client.MatchingLabels{"round": strconv.Itoa(round)}))
		floor := timed(func() {
			inParallel(b, func(i int) error {
				j := benchmarkJob(-round, i)
				// Nobody reconciles it, so the plain client has the machine for itself, as the agent had.
				j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue")
				return c.Create(b.Context(), j)
			})
			inParallel(b, func(i int) error {
				js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: benchmarkName(-round, i)}}
				js.Spec = made.Items[0].Spec
				return c.Create(b.Context(), js)
			})
		})
		b.ReportMetric(benchmarkJobs/ours.Seconds(), "jobs/s")
		b.ReportMetric(benchmarkJobs/floor.Seconds(), "floor-jobs/s")
		b.ReportMetric(100*floor.Seconds()/ours.Seconds(), "%-of-floor")
		b.ReportMetric(1000*cpu.Seconds()/float64(benchmarkJobs*round), "agent-CPU-ms/job")
		b.ReportMetric(memory, "agent-MB")
	}
}

func startBenchmark(b *testing.B) (*clusters.Cluster, client.Client, string) {
	b.Helper()
	crds, err := clusters.ModulePaths(b.Context(), clusters.TrainerCRDs, clusters.JobSetCRDs)
	check.Must(b, err)
	cluster, err := clusters.Start(b.Context(), clusters.Options{Name: "bench", CRDs: crds})
	check.Must(b, err)
	b.Cleanup(func() { check.Must(b, cluster.Stop()) })
	check.Must(b, cluster.ApplyTrainerRuntimes(b.Context(), "torch_distributed.yaml"))
	scheme := apiruntime.NewScheme()
	check.Must(b, trainjob.AddToScheme(scheme))
	config := rest.CopyConfig(cluster.Config)
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme})
	check.Must(b, err)
	binary, err := clusters.Build(b.Context(), "worker-agent")
	check.Must(b, err)
	return cluster, c, binary
}

func benchmarkName(round, i int) string {
	return strings.ReplaceAll(fmt.Sprintf("bench%d-%d", round, i), "bench-", "floor")
}

func benchmarkJob(round, i int) *trainer.TrainJob {
	return &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: benchmarkName(round, i)},
		Spec: trainer.TrainJobSpec{
			RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"},
			Trainer:    &trainer.Trainer{NumNodes: new(int32(2)), Image: new("example.com/llm:1")},
			RuntimePatches: []trainer.RuntimePatch{{
				Manager: "trainyard.dev/bench", TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
					Template: &trainer.JobSetTemplatePatch{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"round": strconv.Itoa(round)}}},
				},
			}},
		},
	}
}

// inParallel calls do for each job.
func inParallel(b *testing.B, do func(i int) error) {
	b.Helper()
	next := make(chan int)
	var writers sync.WaitGroup
	for range benchmarkWriters {
		writers.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range benchmarkJobs {
		next <- i
	}
	close(next)
	writers.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// awaitJobSets waits until all JobSets of a round exist. It lists only metadata, to need little of the machine.
func awaitJobSets(b *testing.B, c client.Client, round int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSetList"))
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		check.Must(b, c.List(ctx, list, client.MatchingLabels{"round": strconv.Itoa(round)}))
		if len(list.Items) == benchmarkJobs {
			tick.Stop()
			return
		}
		<-tick.C
	}
}

func timed(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// usage returns the CPU time that a process has used so far, and its memory in MB.
func usage(b *testing.B, pid int) (cpu time.Duration, memory float64) {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("CPU and memory of a process are read from /proc")
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	number := func(i int) int64 { // Fields are counted from 3, the first after the name.
		n, err := strconv.ParseInt(fields[i-3], 10, 64)
		check.Must(b, err)
		return n
	}
	const hertz = 100 // USER_HZ, the same on all of Linux that Go runs on
	cpu = time.Duration(number(14)+number(15)) * time.Second / hertz
	return cpu, float64(number(24)) * float64(os.Getpagesize()) / 1e6
}
