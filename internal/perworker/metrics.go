// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The metrics of controller-runtime that docs/metrics.md and the dashboards have. They have no exported names there. So
// the controllers of workers are found where all others are.
var (
	failedReconciles = registered(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "controller_runtime_reconcile_errors_total",
		Help: "Total number of reconciliation errors per controller",
	}, []string{"controller"}))
	depth = registered(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: metrics.WorkQueueSubsystem,
		Name:      metrics.DepthKey,
		Help:      "Current depth of workqueue by workqueue and priority",
	}, []string{"name", "controller", "priority"}))
)

// controller-runtime registers them before the variables above are set.
var _ controller.Options

// registered registers a metric, unless it is registered already. It returns what is registered.
func registered[C prometheus.Collector](collector C) C {
	err := metrics.Registry.Register(collector)
	if before := (prometheus.AlreadyRegisteredError{}); errors.As(err, &before) {
		if existing, ok := before.ExistingCollector.(C); ok {
			return existing
		}
	}
	return collector
}
