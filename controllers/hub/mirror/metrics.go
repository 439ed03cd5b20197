// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// All durations are measured by this process's clock between two things that it saw or did.
var (
	timeToCopy = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "trainyard_time_to_copy_seconds",
		Help:    "Time from seeing a placed Dispatch to having created the copy on the worker.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	})
	timeToStart = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "trainyard_time_to_start_seconds",
		Help: "Time from seeing a placed Dispatch to seeing a step of the copy run.",
		// From 50 ms to two days.
		Buckets: prometheus.ExponentialBuckets(0.05, 3, 14),
	})
	timeToReport = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "trainyard_time_to_report_seconds",
		Help:    "Time from seeing a copy Complete or Failed to having said so on the hub TrainJob.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	})
)

// measureStart measures the first start of an attempt, if this process has seen the attempt from its beginning.
func (c *checkup) measureStart() {
	if c.attempt.started || c.attempt.written.before {
		return
	}
	if phase, _ := c.seen.phase(); phase == v1alpha1.PhaseRunning {
		c.attempt.started = true
		timeToStart.Observe(c.clock.Since(c.attempt.noticed).Seconds())
	}
}

func init() {
	metrics.Registry.MustRegister(timeToCopy, timeToStart, timeToReport)
}
