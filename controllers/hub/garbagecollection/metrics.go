// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	copiesDeleted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_copies_deleted_total",
		Help: "Copies deleted on a worker, by reason (retention, outdated, decision).",
	}, []string{"cluster", "reason"})
	copiesUnknown = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_unknown_copies",
		Help: "Copies on a worker that carry this hub's ID and of which the hub has no record. They are left alone.",
	}, []string{"cluster"})
)

func init() {
	metrics.Registry.MustRegister(copiesDeleted, copiesUnknown)
}
