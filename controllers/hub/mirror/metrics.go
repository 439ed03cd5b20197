// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// All durations are measured by this process's clock between two things that it saw or did.
var (
	timeToCopy = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "trainyard_time_to_copy_seconds",
		Help:    "Time from seeing a placed Dispatch to having created the copy on the worker.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	})
	timeToReport = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "trainyard_time_to_report_seconds",
		Help:    "Time from seeing a copy Complete or Failed to having said so on the hub TrainJob.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	})
)

func init() {
	metrics.Registry.MustRegister(timeToCopy, timeToReport)
}
