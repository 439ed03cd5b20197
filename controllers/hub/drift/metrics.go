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

// showMetrics counts the runtimes of a worker by state.
func showMetrics(name v1alpha1.ClusterName, known *dispatch.Runtimes) {
	counts := map[v1alpha1.RuntimeState]int{v1alpha1.RuntimeDiffers: 0, v1alpha1.RuntimeUnsupported: 0, v1alpha1.RuntimeUnknown: 0}
	for _, comparison := range known.All() {
		if isShown(&comparison) {
			counts[comparison.State]++
		}
	}
	for state, count := range counts {
		runtimes.WithLabelValues(string(name), string(state)).Set(float64(count))
	}
}

func forgetMetrics(name v1alpha1.ClusterName) {
	of := prometheus.Labels{"cluster": string(name)}
	runtimes.DeletePartialMatch(of)
	comparisons.DeletePartialMatch(of)
}
