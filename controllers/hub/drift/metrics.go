// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

var (
	runtimes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_worker_runtimes",
		Help: "Runtimes of a worker that are not the hub's runtimes of the same kind, namespace and name, by state (Differs, Unsupported, " +
			"Unknown). Of a worker that is away: when it was last seen.",
	}, []string{"cluster", "state"})
	comparisons = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_runtime_comparisons_total",
		Help: "Dry runs by which runtimes of a worker were compared with the hub's. Their number does not depend on jobs.",
	}, []string{"cluster"})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global, and so are its metrics.
	metrics.Registry.MustRegister(runtimes, comparisons)
}

// showMetrics begins the series of a worker.
func showMetrics(name v1alpha1.ClusterName) {
	for _, state := range []v1alpha1.RuntimeState{v1alpha1.RuntimeDiffers, v1alpha1.RuntimeUnsupported, v1alpha1.RuntimeUnknown} {
		runtimes.WithLabelValues(string(name), string(state)).Set(0)
	}
}

// count adds to the number of runtimes of a worker with the state of a comparison, if an admin should know of that.
func count(name v1alpha1.ClusterName, comparison dispatch.Comparison, number float64) {
	if isShown(&comparison) {
		runtimes.WithLabelValues(string(name), string(comparison.State)).Add(number)
	}
}

func forgetMetrics(name v1alpha1.ClusterName) {
	of := prometheus.Labels{"cluster": string(name)}
	runtimes.DeletePartialMatch(of)
	comparisons.DeletePartialMatch(of)
}
