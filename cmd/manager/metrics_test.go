// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"testing"

	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/metrics"
	"github.com/trainyard/trainyard/test/ports"
)

// TestMetricsAreDocumented checks docs/metrics.md against what the manager registers.
func TestMetricsAreDocumented(t *testing.T) {
	metrics.CheckRegistry(t, metrics.Waiting, metrics.Jobs, metrics.Workers)
}

// TestServedMetrics checks docs/metrics.md, and by it the alerts and dashboards, against a running manager.
func TestServedMetrics(t *testing.T) {
	w := hub(t)
	address, err := ports.Free()
	check.Must(t, err)
	w.start(t, "--webhook-bind-address=0", "--metrics-bind-address="+address, "--metrics-secure=false")
	var body string
	eventually(t, "a manager that leads, and whose controllers run", func(g gomega.Gomega) {
		response, err := http.Get("http://" + address + "/metrics")
		g.Expect(err).NotTo(gomega.HaveOccurred())
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		body = string(text)
		g.Expect(body).To(gomega.ContainSubstring(`leader_election_master_status{name="` + leaseName + `"} 1`))
		g.Expect(body).To(gomega.ContainSubstring("workqueue_depth{"))
		g.Expect(body).To(gomega.ContainSubstring("controller_runtime_reconcile_errors_total{"))
	})
	metrics.CheckServed(t, body)
}
