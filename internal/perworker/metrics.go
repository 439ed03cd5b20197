// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// failedReconciles is controller-runtime's counter of failed reconciles, which has no exported name there. Alerts and
// dashboards find the controllers of workers where they find the others.
var failedReconciles = registered(prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "controller_runtime_reconcile_errors_total",
	Help: "Total number of reconciliation errors per controller",
}, []string{"controller"}))

// The counter is registered when this package is imported.
var _ controller.Options

// registered registers a metric, unless it is registered already. It returns what is registered.
func registered(counter *prometheus.CounterVec) *prometheus.CounterVec {
	err := metrics.Registry.Register(counter)
	if before := (prometheus.AlreadyRegisteredError{}); errors.As(err, &before) {
		if existing, ok := before.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing
		}
	}
	return counter
}
