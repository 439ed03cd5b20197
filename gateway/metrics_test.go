// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/test/check"
)

// measured returns what the manager's /metrics would have for a metric with these labels, 0 if it has nothing.
func measured(t *testing.T, name string, labels prometheus.Labels) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			matched := 0
			for _, label := range metric.GetLabel() {
				if labels[label.GetName()] == label.GetValue() {
					matched++
				}
			}
			if matched == len(labels) && len(metric.GetLabel()) == len(labels) {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// TestRequestsAreCounted: each answer counts once, by its route and its code, also an answer that refuses.
func TestRequestsAreCounted(t *testing.T) {
	const list = "/api/v1/namespaces/team/pods"
	nobody := func(w *world) { w.handler().limits.ofAll, w.handler().listing.ofAll = 0, 0 }
	exec := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/exec") {
			upgraded(w, r)
			return true
		}
		return false
	}
	for name, tc := range map[string]struct {
		method, path string
		header       []string
		worker       workerServer
		prepare      func(w *world)
		route, code  string
	}{
		"Hub":            {path: "/api/v1/secrets", route: "hub", code: "404"},
		"List":           {path: list, route: "list", code: "200"},
		"Get":            {path: podURL, route: "get", code: "200"},
		"Log":            {path: logURL, route: "log", code: "200"},
		"Exec":           {path: podURL + "/exec", header: upgrade, worker: workerServer{evil: exec}, route: "stream", code: "200"}, // Its connection is taken over, and the code with it.
		"Change":         {method: http.MethodDelete, path: podURL, route: "change", code: "405"},
		"TooManyLists":   {path: list, prepare: nobody, route: "list", code: "429"},
		"TooManyWatches": {path: list + "?watch=1", prepare: nobody, route: "watch", code: "429"},
		"TooManyLogs":    {path: logURL, prepare: nobody, route: "log", code: "429"},
		"TooManyStreams": {path: podURL + "/exec", header: upgrade, prepare: nobody, route: "stream", code: "429"},
		"NoToken":        {path: logURL, header: []string{"Authorization", ""}, route: "log", code: "401"},
		"NoTokenForHub":  {path: "/api/v1/secrets", header: []string{"Authorization", ""}, route: "hub", code: "401"},
		"BadPath":        {path: list + "/../x", route: "hub", code: "400"},
		"BadForm":        {path: list, header: []string{"Accept", "text/html"}, route: "list", code: "406"},
		"SilentWorker": {path: logURL, route: "log", code: "503", worker: workerServer{evil: func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &tc.worker)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			labels := prometheus.Labels{"route": tc.route, "code": tc.code}
			before := measured(t, "trainyard_gateway_requests_total", labels)
			w.send(t, tc.method, tc.path, tc.header...)
			check.Eventually(t, "requests with these labels", func(g gomega.Gomega) {
				g.Expect(measured(t, "trainyard_gateway_requests_total", labels)-before).To(gomega.Equal(1.0), "%v", labels)
			})
		})
	}
}

// TestOpenStreamsAreCounted: a stream counts while it is open, and a refused one never.
func TestOpenStreamsAreCounted(t *testing.T) {
	w := newWorld(t, &workerServer{evil: func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			return false
		}
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}})
	const gauge = "trainyard_gateway_streams"
	before := measured(t, gauge, nil)
	follow := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.gateway.URL+logURL+"?follow=true", nil)
		check.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+good)
		res, err := w.gateway.Client().Do(r)
		check.Must(t, err)
		return res
	}
	one, two := follow(), follow()
	check.Equal(t, 2.0, measured(t, gauge, nil)-before, "streams while two logs are followed")
	w.handler().limits.ofAll = 2
	check.Equal(t, http.StatusTooManyRequests, w.send(t, http.MethodGet, logURL).code, "code of a third stream")
	check.Equal(t, 2.0, measured(t, gauge, nil)-before, "streams after a third one was refused")
	check.Must(t, one.Body.Close())
	check.Must(t, two.Body.Close())
	w.gateway.Close() // It waits for the requests.
	check.Equal(t, 0.0, measured(t, gauge, nil)-before, "streams after their ends")
}

// TestSilenceIsCounted: a request that a worker does not answer counts for this worker, and one that it answers does not.
func TestSilenceIsCounted(t *testing.T) {
	labels := prometheus.Labels{"cluster": "east"}
	const counter = "trainyard_gateway_unanswered_total"
	breaks := false
	w := newWorld(t, &workerServer{evil: func(w http.ResponseWriter, r *http.Request) bool {
		if breaks && r.URL.Path == podURL {
			panic(http.ErrAbortHandler)
		}
		return false
	}})
	before := measured(t, counter, labels)
	w.send(t, http.MethodGet, podURL)
	check.Equal(t, 0.0, measured(t, counter, labels)-before, "after an answer")
	breaks = true
	check.Equal(t, http.StatusServiceUnavailable, w.send(t, http.MethodGet, podURL).code, "code without an answer")
	check.Equal(t, 1.0, measured(t, counter, labels)-before, "after an answer that has not come")
}
