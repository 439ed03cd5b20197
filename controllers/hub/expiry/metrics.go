// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	deleted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_jobs_expired_total",
		Help: "TrainJobs that were deleted because the time after their end was over, by whose word it was (annotation, policy).",
	}, []string{"by"})
	archiveFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trainyard_archive_failures_total",
		Help: "Attempts to archive a TrainJob that failed. The TrainJob stays until one succeeds.",
	})
)

func init() {
	metrics.Registry.MustRegister(deleted, archiveFailures)
}
