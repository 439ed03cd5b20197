// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_worker_requests_total",
		Help: "Requests to the API server of a worker, by verb and HTTP status code. The verb of a watch that begins with a list is " +
			"\"watchlist\". The code is \"error\" where there was no answer.",
	}, []string{"cluster", "verb", "code"})
	workerState = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_worker_state",
		Help: "1 for the state of the connection to a worker, 0 for its other states.",
	}, []string{"cluster", "state"})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global, and so are its metrics.
	metrics.Registry.MustRegister(requestsTotal, workerState)
}

// meter writes the metrics of one worker. After close it writes none, so late requests recreate no series.
type meter struct {
	name string

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		closed bool
	}
}

func newMeter(name v1alpha1.ClusterName) *meter { return &meter{name: string(name)} }

// request counts a request. Code 0 means that there was no answer.
func (m *meter) request(verb string, code int) {
	text := "error"
	if code != 0 {
		text = strconv.Itoa(code)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.locked.closed {
		requestsTotal.WithLabelValues(m.name, verb, text).Inc()
	}
}

func (m *meter) state(now State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked.closed {
		return
	}
	for state := range Closed {
		value := 0.0
		if state == now {
			value = 1
		}
		workerState.WithLabelValues(m.name, state.String()).Set(value)
	}
}

// close deletes the series.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locked.closed = true
	requestsTotal.DeletePartialMatch(prometheus.Labels{"cluster": m.name})
	workerState.DeletePartialMatch(prometheus.Labels{"cluster": m.name})
}
