// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/metrics"
)

// TestMetricsAreDocumented checks docs/metrics.md against what the agent registers.
func TestMetricsAreDocumented(t *testing.T) {
	metrics.CheckRegistry(t, metrics.Agent)
}

// TestServedMetrics checks docs/metrics.md, and by it the alerts and dashboards, against a running agent with a job.
func TestServedMetrics(t *testing.T) {
	setUp(t)
	a := startAgent(t)
	eventually(t, "an agent that leads", func(g gomega.Gomega) { g.Expect(a.isLeader(g)).To(gomega.BeTrue()) })
	awaitComplete(t, createJob(t, "measured"))
	a.awaitMetric(t, `trainyard_trainjobs_finished_total{condition="Complete",reason="AllJobsCompleted"} 1`)
	body, err := fetch(a.metrics, "/metrics")
	check.Must(t, err)
	metrics.CheckServed(t, body)
}
