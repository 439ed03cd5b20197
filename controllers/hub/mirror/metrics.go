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
func (v checkup) measureStart() {
	if v.attempt.started || v.attempt.said.before {
		return
	}
	if phase, _ := v.phase(); phase == v1alpha1.PhaseRunning {
		v.attempt.started = true
		timeToStart.Observe(v.Clock.Since(v.attempt.noticed).Seconds())
	}
}

func init() {
	metrics.Registry.MustRegister(timeToCopy, timeToStart, timeToReport)
}
