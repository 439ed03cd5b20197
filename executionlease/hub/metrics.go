// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
)

var (
	answersWritten = prometheus.NewDesc("trainyard_execution_lease_answers_total",
		"Challenges of a worker's agent that were answered.", []string{"cluster"}, nil)
	challengeAge = prometheus.NewDesc("trainyard_execution_lease_challenge_age_seconds",
		"Time since this process has first read the last challenge of a worker's agent. It grows beyond some intervals (at most 10 s each) when "+
			"the agent or the way to it does not work.", []string{"cluster"}, nil)
	agentStates = prometheus.NewDesc("trainyard_execution_lease_agent",
		"1 for what is known of a worker's agent, 0 for what it might be else.", []string{"cluster", "presence"}, nil)
)

// shown is the Agents that the metrics show.
var shown atomic.Pointer[Agents]

// collector computes its metrics when Prometheus asks, because they depend on the time.
type collector struct{}

func init() { //nolint:gochecknoinits // controller-runtime's registry is global, and so are its metrics.
	metrics.Registry.MustRegister(collector{})
}

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{answersWritten, challengeAge, agentStates} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(to chan<- prometheus.Metric) {
	if a := shown.Load(); a != nil {
		for _, metric := range a.metrics() {
			to <- metric
		}
	}
}

// metrics are about each worker with a connection, also a broken one.
func (a *Agents) metrics() (all []prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	for worker, s := range a.locked.byWorker {
		if s.status == nil || s.status().State == remote.Closed {
			continue
		}
		s.countContact()
		name := string(worker)
		for state := range protocol.AgentAlive + 1 {
			value := 0.0
			if state == s.lease.AgentState() {
				value = 1
			}
			all = append(all, prometheus.MustNewConstMetric(agentStates, prometheus.GaugeValue, value, name, state.String()))
		}
		all = append(all, prometheus.MustNewConstMetric(answersWritten, prometheus.CounterValue, float64(s.answers), name))
		if read := s.lease.ChallengeRead(); !read.IsZero() {
			all = append(all, prometheus.MustNewConstMetric(challengeAge, prometheus.GaugeValue, now.Sub(read).Seconds(), name))
		}
	}
	return all
}
