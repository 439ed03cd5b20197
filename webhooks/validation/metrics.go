// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// refusals counts faults: a request with two faults counts under both rules. controller-runtime counts and times
// requests (controller_runtime_webhook_requests_total, controller_runtime_webhook_latency_seconds).
var refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "trainyard_admission_refusals_total",
	Help: "Faults for which a request was refused, by the agent and by the manager (webhook hub-trainjob).",
}, []string{"webhook", "rule"})

func init() {
	metrics.Registry.MustRegister(refusals)
}

// recordRefusal counts one fault of a refused request. Both labels come from constants, never from a request.
func recordRefusal(webhook, rule string) {
	refusals.WithLabelValues(webhook, rule).Inc()
}
