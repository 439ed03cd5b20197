// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	keptLogs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trainyard_logs_kept_total",
		Help: "Logs of containers whose end was written to the log archive.",
	})
	missedLogs = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trainyard_logs_missed_total",
		Help: "Logs of containers that had begun and whose end could not be read from their worker.",
	})
	archiveFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trainyard_log_archive_failures_total",
		Help: "Reads and writes of the log archive by the manager's controllers that failed. They are tried again while the pods are there.",
	})
)

func init() {
	metrics.Registry.MustRegister(keptLogs, missedLogs, archiveFailures)
}
