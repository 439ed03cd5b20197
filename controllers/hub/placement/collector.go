// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/dispatch/accelerators"
)

var (
	waitingJobs = prometheus.NewDesc("trainyard_waiting_jobs",
		"Jobs on the waiting list, by policy (empty: none) and reason. Suspended jobs are not on the waiting list.",
		[]string{"policy", "reason"}, nil)
	waitingDevices = prometheus.NewDesc("trainyard_waiting_devices",
		"What the jobs on the waiting list request of GPUs and other extended resources.", []string{"policy", "resource"}, nil)
	firstWaits = prometheus.NewDesc("trainyard_first_waiting_seconds",
		"Time for which the first job on the waiting list of a policy has waited.", []string{"policy"}, nil)
	oldestWaits = prometheus.NewDesc("trainyard_oldest_waiting_seconds",
		"Time for which the longest-waiting job of a policy has waited, of the first jobs of each kind.", []string{"policy"}, nil)
	workerGPUs = prometheus.NewDesc("trainyard_worker_gpus",
		"GPUs and other whole accelerators on the nodes of a worker that take pods. Of a worker that is away: when it was last seen.",
		[]string{"cluster", "resource", "product"}, nil)
	freeGPUs = prometheus.NewDesc("trainyard_worker_free_gpus",
		"GPUs on these nodes that no pod has.", []string{"cluster", "resource", "product"}, nil)
	workerShares = prometheus.NewDesc("trainyard_worker_device_shares",
		"Shares of devices on these nodes, such as MIG slices, in shares of the kind that the resource names.",
		[]string{"cluster", "resource", "product"}, nil)
	freeShares = prometheus.NewDesc("trainyard_worker_free_device_shares",
		"Shares of devices on these nodes that no pod has.", []string{"cluster", "resource", "product"}, nil)
	unusableGPUs = prometheus.NewDesc("trainyard_worker_unusable_gpus",
		"GPUs that are free on a worker although jobs wait that ask for such GPUs and may use the worker: the free GPUs are too few, too "+
			"scattered, or held for another job. Looks at the first 16 kinds of gangs that wait.", []string{"cluster"}, nil)
)

// undecided is the reason of jobs that no pass has decided about.
const undecided = "Undecided"

// gauge writes a metric.
type gauge func(desc *prometheus.Desc, value float64, labels ...string)

// shown writes the metrics of the Reconciler that works, nil if none does.
var shown atomic.Pointer[func(gauge)]

// collector computes its metrics when Prometheus asks, because they depend on the time.
type collector struct{}

func init() { //nolint:gochecknoinits // controller-runtime's registry is global, and so are its metrics.
	metrics.Registry.MustRegister(collector{})
}

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{waitingJobs, waitingDevices, firstWaits, oldestWaits, workerGPUs, freeGPUs, workerShares, freeShares, unusableGPUs} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(to chan<- prometheus.Metric) {
	if collect := shown.Load(); collect != nil {
		(*collect)(func(desc *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
		})
	}
}

// show makes the metrics show this Reconciler until hide is called.
func (r *Reconciler) show(ctx context.Context) (hide func()) {
	collect := func(gauge gauge) {
		collectWaiting(decider.Summarize(r.decider), r.options.Clock, gauge)
		if workers, err := workersOf(ctx, r.options.Hub); err == nil {
			collectGPUs(workers, r.options.Accelerators, gauge)
		}
	}
	shown.Store(&collect)
	return func() { shown.CompareAndSwap(&collect, nil) }
}

func collectWaiting(summary decider.Summary, clock clock.PassiveClock, gauge gauge) {
	for _, sum := range summary.Waiting {
		for reason, jobs := range sum.Jobs {
			gauge(waitingJobs, float64(jobs), sum.Policy, cmp.Or(reason, undecided))
		}
		for name, amount := range sum.Devices {
			gauge(waitingDevices, float64(amount), sum.Policy, string(name))
		}
		gauge(firstWaits, clock.Since(sum.First).Seconds(), sum.Policy)
		gauge(oldestWaits, clock.Since(sum.Oldest).Seconds(), sum.Policy)
	}
	for worker, gpus := range summary.Unusable {
		gauge(unusableGPUs, float64(gpus), string(worker))
	}
}

// collectGPUs reads the status of the WorkerClusters, so the GPUs of a worker that is away are as of when it was last
// seen.
func collectGPUs(workers []v1alpha1.WorkerCluster, table accelerators.Table, gauge gauge) {
	type kind struct {
		unit              accelerators.Unit
		resource, product string
	}
	for i := range workers {
		worker := &workers[i]
		total, free := map[kind]int64{}, map[kind]int64{}
		for j := range worker.Status.NodeGroups {
			group := &worker.Status.NodeGroups[j]
			for _, has := range table.In(group) {
				of := kind{has.Unit, string(has.Resource), has.Product}
				total[of] += int64(group.Nodes) * has.Each
				for at, row := range group.Free {
					free[of] += int64(row.Nodes) * has.Free[at]
				}
			}
		}
		for of, amount := range total {
			all, unused := workerGPUs, freeGPUs
			if of.unit == accelerators.Share {
				all, unused = workerShares, freeShares
			}
			gauge(all, float64(amount), worker.Name, of.resource, of.product)
			gauge(unused, float64(free[of]), worker.Name, of.resource, of.product)
		}
	}
}
