// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/fakeservers"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	workers = 20
	// rounds of two phases each, one without and one with a worker that hangs, so that whatever else the machine does hits
	// both alike.
	rounds = 4
	// jobs of half a phase, created at a rate that the hub bears easily.
	jobs = 50
	gap  = 50 * time.Millisecond
)

// BenchmarkHangingWorker measures the time from the creation of a TrainJob on the hub to the creation of its copy, on
// 19 of 20 workers. It measures while the twentieth worker answers, and while it accepts connections and answers
// nothing. In half of the second phase that worker still counts as Ready and gets jobs. In the other half the hub knows
// that it does not answer. The benchmark reports the two medians, and their ratio, which should be 1.
func BenchmarkHangingWorker(b *testing.B) {
	y := newBench(b, workers)
	hanging := y.fleet.Workers[7]
	without, with, phase := []time.Duration(nil), []time.Duration(nil), 0
	measure := func(hang bool) []time.Duration {
		phase++
		namespace := y.namespace(b, phase)
		if !hang {
			return slices.Concat(y.measure(b, namespace, "first", hanging.Name), y.measure(b, namespace, "second", hanging.Name))
		}
		hanging.Hang()
		defer hanging.Resume()
		took := y.measure(b, namespace, "first", hanging.Name)
		y.awaitUnreachable(b, hanging.Name)
		return slices.Concat(took, y.measure(b, namespace, "second", hanging.Name))
	}
	measure(false) // What is done once, such as propagating the runtime, is not measured.
	y.settle(b)
	for b.Loop() {
		for round := range rounds {
			for _, hang := range []bool{round%2 == 0, round%2 != 0} {
				if took := measure(hang); hang {
					with = append(with, took...)
				} else {
					without = append(without, took...)
				}
				y.settle(b)
			}
		}
	}
	b.ReportMetric(milliseconds(median(without)), "ms-without")
	b.ReportMetric(milliseconds(median(with)), "ms-with")
	b.ReportMetric(float64(median(with))/float64(median(without)), "ratio")
	b.ReportMetric(milliseconds(percentile(without, 99)), "p99-ms-without")
	b.ReportMetric(milliseconds(percentile(with, 99)), "p99-ms-with")
	b.ReportMetric(float64(len(with)), "jobs-with")
}

// measure creates jobs. It returns how long each job took to get its copy, without the jobs on one worker.
func (y *bench) measure(b *testing.B, namespace, prefix, except string) []time.Duration {
	b.Helper()
	ctx := context.Background()
	created := map[types.NamespacedName]time.Time{}
	ticker := time.NewTicker(gap)
	defer ticker.Stop()
	for i := range jobs {
		job := yard.Job{Namespace: namespace, Name: fmt.Sprintf("%s-%d", prefix, i), GPUs: 1}.TrainJob()
		created[client.ObjectKeyFromObject(job)] = time.Now()
		check.Must(b, y.hub.Create(ctx, job))
		<-ticker.C
	}
	var took []time.Duration
	eventually(b, "all copies on workers that answer", func(g gomega.Gomega) {
		took = took[:0]
		var dispatches v1alpha1.DispatchList
		g.Expect(y.hub.List(ctx, &dispatches, client.InNamespace(namespace))).To(gomega.Succeed())
		placed := 0
		for i := range dispatches.Items {
			d := &dispatches.Items[i]
			key := client.ObjectKeyFromObject(d)
			if created[key].IsZero() || d.Spec.Cluster == "" {
				continue
			}
			placed++
			if d.Spec.Cluster == v1alpha1.ClusterName(except) {
				continue
			}
			copied, ok := y.copyOf(key)
			g.Expect(ok).To(gomega.BeTrue(), "%s has no copy", key)
			if copied.worker != except { // It may have been there before.
				took = append(took, copied.at.Sub(created[key]))
			}
		}
		g.Expect(placed).To(gomega.Equal(jobs))
	})
	return took
}

// settle deletes all jobs, and waits until nothing of them is left and all workers are Ready.
func (y *bench) settle(b *testing.B) {
	b.Helper()
	ctx := context.Background()
	y.awaitReady(b)
	for _, namespace := range y.namespaces() {
		check.Must(b, y.hub.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(namespace)))
	}
	eventually(b, "all jobs to go", func(g gomega.Gomega) {
		var left v1alpha1.DispatchList
		g.Expect(y.hub.List(ctx, &left)).To(gomega.Succeed())
		g.Expect(described(left.Items)).To(gomega.BeEmpty())
	})
}

// described are Dispatches in a line each.
func described(dispatches []v1alpha1.Dispatch) []string {
	var all []string
	for i := range dispatches {
		d := &dispatches[i]
		all = append(all, fmt.Sprintf("%s/%s: deleting %t, finalizers %v, spec %s/%d, status %s/%d %s", d.Namespace, d.Name, d.DeletionTimestamp != nil,
			d.Finalizers, d.Spec.Cluster, d.Spec.Attempt, d.Status.Cluster, d.Status.Attempt, d.Status.Phase))
	}
	return all
}

// namespaces are the namespaces of all jobs so far.
func (y *bench) namespaces() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var all []string
	for key := range y.copies {
		all = append(all, key.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func median(of []time.Duration) time.Duration { return percentile(of, 50) }

func percentile(of []time.Duration, percent int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

const (
	managerNamespace = "trainyard-system"
	// waitLimit is for what takes seconds, on a machine that may be busy.
	waitLimit = 5 * time.Minute
	tick      = 50 * time.Millisecond
)

// bench is a hub with a manager and fake workers.
type bench struct {
	hub   client.WithWatch
	fleet *fakeservers.Fleet

	mu     sync.Mutex
	copies map[types.NamespacedName]copied // Under mu: the first copy of each job.
}

// copied says where and when the copy of a job was created.
type copied struct {
	worker string
	at     time.Time
}

// newBench starts all, and returns when the workers are Ready.
func newBench(b *testing.B, workers int) *bench {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	set, err := stage.Start(ctx)
	if err != nil {
		b.Fatalf("benchmarks need a real API server (make controlplane builds it): %v", err)
	}
	b.Cleanup(func() { check.Must(b, set.Stop()) })
	check.Must(b, set.Hub.InstallRuntime(ctx))
	y := &bench{hub: set.Hub.Admin, copies: map[types.NamespacedName]copied{}}
	y.fleet, err = fakeservers.Start(fakeservers.Options{Workers: workers, Nodes: 10, GPUs: 8, RunFor: time.Second, Created: y.created})
	check.Must(b, err)
	b.Cleanup(func() { check.Must(b, y.fleet.Close()) })
	check.Must(b, y.hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: managerNamespace}}))
	// Jobs are spread, or one worker would get them all. Their copies are deleted as soon as they have ended.
	check.Must(b, y.hub.Create(ctx, &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "spread"},
		Spec: v1alpha1.DispatchPolicySpec{
			Scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreLeastAllocated}}, Retention: &metav1.Duration{},
		},
	}))
	y.register(ctx, b)
	manager, err := clusters.Build(ctx, "manager")
	check.Must(b, err)
	_, err = set.Hub.Cluster.Run(ctx, "manager", manager, "--kubeconfig="+set.Hub.Cluster.KubeconfigPath, "--namespace="+managerNamespace,
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--worker-probe-interval=1s")
	check.Must(b, err)
	y.awaitReady(b)
	return y
}

func (y *bench) register(ctx context.Context, b *testing.B) {
	b.Helper()
	dir := b.TempDir()
	for _, worker := range y.fleet.Workers {
		kubeconfig, err := worker.Kubeconfig()
		check.Must(b, err)
		path := filepath.Join(dir, worker.Name)
		check.Must(b, os.WriteFile(path, kubeconfig, 0o600))
		check.Must(b, y.hub.Create(ctx, &v1alpha1.WorkerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: worker.Name},
			Spec:       v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: path}},
		}))
	}
}

// awaitReady waits until all workers are Ready.
func (y *bench) awaitReady(b *testing.B) {
	b.Helper()
	eventually(b, "all workers to be Ready", func(g gomega.Gomega) {
		var list v1alpha1.WorkerClusterList
		g.Expect(y.hub.List(context.Background(), &list)).To(gomega.Succeed())
		g.Expect(list.Items).To(gomega.HaveLen(len(y.fleet.Workers)))
		for i := range list.Items {
			ready := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.WorkerClusterReady)
			g.Expect(ready).NotTo(gomega.BeNil(), list.Items[i].Name)
			g.Expect(ready.Status).To(gomega.Equal(metav1.ConditionTrue), "%s: %s %s", list.Items[i].Name, ready.Reason, ready.Message)
		}
	})
}

// awaitUnreachable waits until the hub knows that a worker does not answer.
func (y *bench) awaitUnreachable(b *testing.B, name string) {
	b.Helper()
	eventually(b, name+" to be Unreachable", func(g gomega.Gomega) {
		worker := &v1alpha1.WorkerCluster{}
		g.Expect(y.hub.Get(context.Background(), types.NamespacedName{Name: name}, worker)).To(gomega.Succeed())
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(ready).NotTo(gomega.BeNil())
		g.Expect(ready.Reason).To(gomega.Equal(v1alpha1.ReasonUnreachable))
	})
}

var eventually = check.Within(waitLimit, tick)

func (y *bench) created(worker *fakeservers.Worker, job types.NamespacedName, at time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if _, again := y.copies[job]; !again {
		y.copies[job] = copied{worker: worker.Name, at: at}
	}
}

func (y *bench) copyOf(job types.NamespacedName) (copied, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	c, ok := y.copies[job]
	return c, ok
}

// namespace makes one for the jobs of a phase.
func (y *bench) namespace(b *testing.B, number int) string {
	b.Helper()
	name := fmt.Sprintf("phase-%d", number)
	check.Must(b, y.hub.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	return name
}
