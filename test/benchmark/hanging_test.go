// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
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
