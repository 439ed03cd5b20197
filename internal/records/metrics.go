// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	attemptsEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_attempts_ended_total",
		Help: "Attempts that ended without the end of their job, by worker and outcome (Rejected, NameConflict, CopyDeleted, CopyChanged, " +
			"JobChanged, Preempted, Drained, AdmissionTimeout, Suspended, ManagedByMultiKueue, WorkerLost).",
	}, []string{"cluster", "outcome"})
	jobsFinished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_jobs_finished_total",
		Help: "Jobs that ended, by worker and outcome (Complete, Failed).",
	}, []string{"cluster", "outcome"})
	gpuSeconds = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_gpu_seconds_total",
		Help: "GPUs that the pods of ended attempts request, times the seconds that their copies ran, by namespace, worker and GPU product " +
			"(the resource, where the product is not known). Attempts with unknown times are not in it.",
	}, []string{"namespace", "cluster", "product"})
)

func init() {
	metrics.Registry.MustRegister(attemptsEnded, jobsFinished, gpuSeconds)
}
