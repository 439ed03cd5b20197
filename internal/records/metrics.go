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
		Help: "Attempts that ended without the end of their job, by worker and outcome.",
	}, []string{"cluster", "outcome"})
	jobsFinished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_jobs_finished_total",
		Help: "Jobs that ended, by worker (empty: none) and outcome: Complete, Failed, or GivenUp by giveUpAfter of their policy.",
	}, []string{"cluster", "outcome"})
	gpuSeconds = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_gpu_seconds_total",
		Help: "What attempts have cost that ended, or whose job was deleted while they ran: GPUs and other whole accelerators that their " +
			"pods request, times the seconds " +
			"from the start of the JobSet to the end or deletion of the copy, by the worker's clock. An attempt whose times nobody saw, as on a " +
			"lost worker, is not in it. The product is the resource if the worker has several products and the job selects none.",
	}, []string{"namespace", "cluster", "product"})
	shareSeconds = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_device_share_seconds_total",
		Help: "The same for shares of devices, such as MIG slices, in shares of the kind that the resource names.",
	}, []string{"namespace", "cluster", "resource", "product"})
)

func init() {
	metrics.Registry.MustRegister(attemptsEnded, jobsFinished, gpuSeconds, shareSeconds)
}
