// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/dispatch/record"
)

var (
	attemptsEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_attempts_ended_total",
		Help: "Attempts that ended without the end of their job, by worker and outcome (" + outcomes(false) + ").",
	}, []string{"cluster", "outcome"})
	jobsFinished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_jobs_finished_total",
		Help: "Jobs that ended, by worker and outcome (" + outcomes(true) + ").",
	}, []string{"cluster", "outcome"})
	gpuSeconds = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_gpu_seconds_total",
		Help: "GPUs that the pods of ended attempts request, times the seconds that their copies ran, by namespace, worker and GPU product " +
			"(the resource, where the product is not known). Attempts with unknown times are not in it.",
	}, []string{"namespace", "cluster", "product"})
)

// outcomes lists the outcomes of attempts with or without the end of their job.
func outcomes(finishes bool) string {
	var names []string
	for _, ending := range record.Endings() {
		if ending.Finishes == finishes {
			names = append(names, string(ending.Outcome))
		}
	}
	return strings.Join(names, ", ")
}

func init() {
	metrics.Registry.MustRegister(attemptsEnded, jobsFinished, gpuSeconds)
}
