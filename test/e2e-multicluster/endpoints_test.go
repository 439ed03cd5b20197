// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"net/http"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/yard"
)

// The manager answers probes, and its metrics tell how long jobs wait and what workers are asked.
func TestManagerEndpoints(t *testing.T) {
	ends(t, submit(t, yard.Job{Name: "measured", GPUs: 1, RunFor: "1s"}), trainer.TrainJobComplete)
	eventually(t, func(g gomega.Gomega) {
		fetch(t, g, y.ManagerHealth+"/healthz")
		fetch(t, g, y.ManagerHealth+"/readyz")
		metrics := fetch(t, g, y.ManagerMetrics)
		for _, series := range []string{
			"trainyard_time_to_place_seconds_count ", "trainyard_time_to_copy_seconds_count ", "trainyard_time_to_report_seconds_count ",
			`trainyard_jobs{cluster="`, `trainyard_jobs_finished_total{cluster="`,
			`trainyard_worker_state{cluster="small",state="Connected"} 1`,
			`trainyard_worker_requests_total{cluster="`, `verb="create"`,
		} {
			g.Expect(metrics).To(gomega.ContainSubstring(series))
		}
	})
}

// fetch gets a URL of the manager.
func fetch(t *testing.T, g gomega.Gomega, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(response.StatusCode).To(gomega.Equal(http.StatusOK), "%s: %s", url, body)
	return string(body)
}
