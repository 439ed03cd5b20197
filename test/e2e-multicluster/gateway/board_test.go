// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestBoard: a user sees on the board of the gateway what the user may see on the hub, with the pods and logs of workers.
func TestBoard(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "board", GPUs: 1}, east, "loss is 0.25")
	pods := runs(t, east, job)
	get := func(u *yard.User, path string, query url.Values) answer {
		return send(t, u, http.MethodGet, "/board/"+path, query, nil)
	}
	ours, key := url.Values{"namespace": {team}}, url.Values{"namespace": {team}, "name": {job.Name}}
	y.Eventually(t, func(g gomega.Gomega) {
		a := get(viewer, "api/jobs", key)
		g.Expect(a.code).To(gomega.Equal(http.StatusOK), string(a.body))
		var page struct {
			Items []struct{ State, Worker string }
		}
		g.Expect(json.Unmarshal(a.body, &page)).To(gomega.Succeed())
		g.Expect(page.Items).To(gomega.HaveLen(1))
		g.Expect(page.Items[0].State + " " + page.Items[0].Worker).To(gomega.Equal("Running " + east))
	})
	contains(t, string(get(viewer, "", nil).body), "assets/app.js")
	contains(t, string(get(viewer, "api/job", key).body), "Running on worker "+east, `"kind":"Running"`)
	contains(t, string(get(viewer, "api/pods", key).body), pods[0], `"worker":"`+east+`"`)
	log := url.Values{"namespace": {team}, "name": {job.Name}, "pod": {pods[0]}, "container": {"node"}}
	res, err := ask(t.Context(), viewer, http.MethodGet, "/board/api/log", log, nil)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	first := make([]byte, len("loss is 0.25"))
	_, err = res.Body.Read(first) // The log goes on as long as the job.
	check.Must(t, err)
	check.Equal(t, "loss is 0.25", string(first), "log")
	for _, path := range []string{"api/jobs", "api/queue", "api/job", "api/pods", "api/log", "api/stream/jobs"} {
		query := ours
		switch path {
		case "api/job", "api/pods":
			query = key
		case "api/log":
			query = log
		}
		a := get(stranger, path, query)
		check.Equal(t, http.StatusForbidden, a.code, "%s for a stranger: %s", path, a.body)
	}
	a := get(viewer, "api/fleet", nil)
	check.Equal(t, http.StatusForbidden, a.code, "code of the fleet")
	contains(t, string(a.body), "workerclusters.trainyard.dev: list, watch", "trainyard-operator")
}
