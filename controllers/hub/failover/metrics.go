// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

var (
	workersLost = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_worker_lost",
		Help: "1 for each worker that is lost, by what is done about its jobs (lost: what their failover says; paused; gone: its WorkerCluster " +
			"was deleted while it had jobs; forgotten).",
	}, []string{"cluster", "state"})
	jobsMoved = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_jobs_moved_total",
		Help: "Attempts that were ended because their worker was lost, by worker and failover; forgotten workers' as Forgotten.",
	}, []string{"cluster", "failover"})
	tombstonesWritten = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_tombstones_written_total",
		Help: "Tombstones written for copies on workers that were away, by worker.",
	}, []string{"cluster"})
)

func init() {
	metrics.Registry.MustRegister(workersLost, jobsMoved, tombstonesWritten)
}

func count(worker v1alpha1.ClusterName, state workerState) {
	for _, shown := range []workerState{paused, lost, gone, forgotten} {
		if shown == state {
			workersLost.WithLabelValues(string(worker), shown.String()).Set(1)
		} else {
			workersLost.DeleteLabelValues(string(worker), shown.String())
		}
	}
}
