// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	expiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_worker_credentials_expiry_timestamp_seconds",
		Help: "When the hub's credentials of a worker expire, in seconds since 1970. Absent if they do not, or do not say so. The time stays " +
			"when they have expired.",
	}, []string{"cluster"})
	renewals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_worker_token_renewals_total",
		Help: "Tries to renew the hub's token of a worker, by result (renewed, failed).",
	}, []string{"cluster", "result"})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global, and so are its metrics.
	metrics.Registry.MustRegister(expiry, renewals)
}

// show shows when credentials expire. Zero: not known.
func show(worker string, at time.Time) {
	if at.IsZero() {
		expiry.DeleteLabelValues(worker)
		return
	}
	expiry.WithLabelValues(worker).Set(float64(at.Unix()))
}

// forget drops the series of a worker that is gone.
func forget(worker string) {
	expiry.DeleteLabelValues(worker)
	renewals.DeletePartialMatch(prometheus.Labels{"cluster": worker})
}
