// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/go-logr/logr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/check"
)

// TestBoardNeedsToken: a browser without a proxy in front has no token, and learns how to open the board.
func TestBoardNeedsToken(t *testing.T) {
	w := newWorld(t, &workerServer{})
	for _, path := range []string{"/board/", "/board/jobs", "/board/assets/app.js", "/board/api/fleet", "/board/api/stream/jobs"} {
		a := w.send(t, http.MethodGet, path, "Authorization", "")
		if a.code != http.StatusUnauthorized || !strings.Contains(a.body, "kubectl trainyard board") || strings.Contains(a.body, "<script") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
		check.Equal(t, "Bearer", a.header.Get("Www-Authenticate"), "challenge")
		if !strings.Contains(a.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s has the policy %q", path, a.header.Get("Content-Security-Policy"))
		}
	}
	check.Equal(t, 0, len(w.hub.all()), "requests that the hub received")
	a := w.send(t, http.MethodGet, "/board/api/fleet", "Authorization", "Bearer other")
	check.Equal(t, http.StatusUnauthorized, a.code, "code for a token that the hub does not know: %s", a.body)
}

// TestBoardHasTheCallersRights: the hub decides with the token of the caller who sees what, and the manager's cache shows
// nothing else.
func TestBoardHasTheCallersRights(t *testing.T) {
	w := newWorld(t, &workerServer{hub: func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "selfsubjectaccessreviews") && r.Header.Get("Authorization") == "Bearer "+good {
			body, _ := io.ReadAll(r.Body)
			allowed := strings.Contains(string(body), "team")
			answerJSON(w, authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}})
			return
		}
		hubServer(w, r)
	}})
	// The watches begin with the first page. Then the cache has what the manager sees.
	w.send(t, http.MethodGet, "/board/api/jobs?namespace=team")
	for _, key := range []types.NamespacedName{{Namespace: "team", Name: "job"}, {Namespace: "secret", Name: "theirs"}} {
		job := trainjobs.New()
		job.SetNamespace(key.Namespace)
		job.SetName(key.Name)
		job.SetUID(types.UID(key.Name))
		informer, err := w.informers.FakeInformerFor(t.Context(), job)
		check.Must(t, err)
		informer.Add(job)
	}
	a := w.send(t, http.MethodGet, "/board/api/jobs?namespace=team")
	if a.code != http.StatusOK || !strings.Contains(a.body, `"key":"team/job"`) || strings.Contains(a.body, "theirs") {
		t.Errorf("own jobs: %d %s", a.code, a.body)
	}
	for _, path := range []string{"/board/api/jobs", "/board/api/jobs?namespace=secret", "/board/api/fleet", "/board/api/stream/queue", "/board/api/stream/fleet"} {
		if a := w.send(t, http.MethodGet, path); a.code != http.StatusForbidden || !strings.Contains(a.body, "lacks") || strings.Contains(a.body, "theirs") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	w.send(t, http.MethodGet, "/board/api/job?namespace=team&name=job")
	for _, r := range w.hub.all() {
		if r.header.Get("Authorization") != "Bearer "+good {
			t.Errorf("the hub received %s %s with %q", r.method, r.uri, r.header.Get("Authorization"))
		}
	}
}

// TestBoardRefusesOtherPages: a proxy adds the token of its user to whatever the browser sends.
func TestBoardRefusesOtherPages(t *testing.T) {
	w := newWorld(t, &workerServer{})
	for name, header := range map[string][]string{
		"Fetch": {"Sec-Fetch-Site", "cross-site"}, "OtherPort": {"Sec-Fetch-Site", "same-site"}, "Old": {"Origin", "https://evil.example"},
	} {
		for _, path := range []string{"/board/api/jobs", "/board/api/stream/jobs", "/board/"} {
			check.Equal(t, http.StatusForbidden, w.send(t, http.MethodGet, path, header...).code, "%s %s", name, path)
		}
		check.Equal(t, http.StatusForbidden, w.send(t, http.MethodPost, "/board/api/whatif", header...).code, "%s of a form", name)
	}
	for _, path := range []string{"/board/../api", "/board/%2e%2e/api/v1/secrets", "/board/assets/../../api", "/board/api/v1/secrets", "/boards", "/board/assets/..%2f..%2fboard.go"} {
		check.Equal(t, http.StatusNotFound, w.send(t, http.MethodGet, path).code, "%s", path)
	}
	check.Equal(t, 0, len(w.worker.all()), "requests that the worker received")
}

// TestBoardShowsPodsOfWorkers: pods and logs come as the gateway itself shows them, and no token reaches the worker.
func TestBoardShowsPodsOfWorkers(t *testing.T) {
	w := newWorld(t, &workerServer{hub: func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+good && strings.HasSuffix(r.URL.Path, "/pods") {
			answerJSON(w, map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": []any{}})
			return
		}
		hubServer(w, r)
	}})
	a := w.send(t, http.MethodGet, "/board/api/pods?namespace=team&name=job")
	if a.code != http.StatusOK || !strings.Contains(a.body, pod) {
		t.Errorf("pods: %d %s", a.code, a.body)
	}
	a = w.send(t, http.MethodGet, "/board/api/log?namespace=team&name=job&container=node&pod="+pod)
	check.Equal(t, "printed\n", a.body, "log: %d", a.code)
	check.Equal(t, "text/plain; charset=utf-8", a.header.Get("Content-Type"), "type of the log")
	for _, r := range w.worker.all() {
		check.Equal(t, "Bearer "+workerToken, r.header.Get("Authorization"), "token at the worker")
	}
	a = w.send(t, http.MethodGet, "/board/api/log?namespace=team&name=job&container=node&pod=of-another-job")
	check.Equal(t, http.StatusNotFound, a.code, "code for a pod that is none of the gateway's: %s", a.body)
}

// TestPanicInside: a handler that panics, as those of net/http do to end an answer, ends the answer and not the process.
func TestPanicInside(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"Before": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"Within": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "begun")
			panic("a fault")
		},
	} {
		i := &inside{handler: handler, caller: &caller{token: good}, log: logr.Discard()}
		res, err := i.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://hub/api", nil))
		check.Must(t, err)
		_, err = io.ReadAll(res.Body)
		if err == nil && res.StatusCode == http.StatusOK {
			t.Errorf("%s: the answer looks whole", name)
		}
	}
}
