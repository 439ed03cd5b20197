// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_gateway_requests_total",
		Help: "Requests that this replica's gateway has answered, by what is done with them (hub, list, watch, get, log, stream, change, board) and code.",
	}, []string{"route", "code"})
	openStreams = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "trainyard_gateway_streams",
		Help: "Watches of pods and Events, logs, and connections to pods that are open in this replica's gateway.",
	})
	silences = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_gateway_unanswered_total",
		Help: "Requests of the gateway that a worker has not answered in time, or not at all.",
	}, []string{"cluster"})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global.
	metrics.Registry.MustRegister(requests, openStreams, silences)
}
