// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

const (
	podURL = "/api/v1/namespaces/team/pods/" + pod
	logURL = podURL + "/log"
)

// TestTokenStaysHere: what says who the caller is never reaches a worker, whatever the request is.
func TestTokenStaysHere(t *testing.T) {
	protocol := "v5.channel.k8s.io, " + protocolToken + base64.RawURLEncoding.EncodeToString([]byte(good))
	for name, tc := range map[string]struct {
		method, path string
		header       []string
	}{
		"Log":    {path: logURL},
		"Get":    {path: podURL},
		"List":   {path: "/api/v1/namespaces/team/pods"},
		"Events": {path: "/api/v1/namespaces/team/events"},
		"Delete": {method: http.MethodDelete, path: podURL},
		"Exec":   {path: podURL + "/exec?command=true", header: upgrade},
		"ExecBySubprotocol": {path: podURL + "/exec?command=true", header: []string{
			"Authorization", "", "Connection", "Upgrade", "Upgrade", "websocket", headerProtocol, protocol,
		}},
		"ExecByBoth": {path: podURL + "/exec?command=true", header: []string{"Connection", "Upgrade", "Upgrade", "websocket", headerProtocol, protocol}},
		"SPDY": {method: http.MethodPost, path: podURL + "/portforward", header: []string{
			"Connection", "Upgrade", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "portforward.k8s.io",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{})
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			w.send(t, tc.method, tc.path, append(tc.header, "Impersonate-User", "root", "X-Remote-User", "root", "X-Remote-Group", "system:masters",
				"Cookie", "session=1", "Proxy-Authorization", "Basic eA==", "X-Forwarded-For", "10.1.2.3", "Referer", "https://example.com/?t="+good)...)
			received := w.worker.all()
			if len(received) < 2 {
				t.Fatalf("the worker received only %v", received)
			}
			for _, r := range received {
				if got := r.header.Get("Authorization"); got != "Bearer "+workerToken {
					t.Errorf("%s %s has Authorization %q", r.method, r.uri, got)
				}
				text := fmt.Sprint(r.uri, r.header)
				for _, secret := range []string{good, protocolToken, "Impersonate", "X-Remote", "Cookie", "session", "Proxy-", "10.1.2.3", "Referer"} {
					if strings.Contains(text, secret) {
						t.Errorf("%s %s has %q: %v", r.method, r.uri, secret, r.header)
					}
				}
			}
		})
	}
}

// TestManagersRightsAreNotLent: a request without a token, or with one that the hub does not know, gets nothing, and what
// the manager may do on the hub is never used.
func TestManagersRightsAreNotLent(t *testing.T) {
	w := newWorld(t, &workerServer{})
	for name, header := range map[string][]string{
		"None": {"Authorization", ""}, "Basic": {"Authorization", "Basic YWRhOmFkYQ=="}, "Empty": {"Authorization", "Bearer "}, "Other": {"Authorization", "Bearer other"},
		"RemoteUser": {"Authorization", "", "X-Remote-User", "root"},
	} {
		for _, path := range []string{"/api", "/version", "/api/v1/namespaces/team/pods", podURL, logURL, "/api/v1/secrets"} {
			if a := w.send(t, http.MethodGet, path, header...); a.code != http.StatusUnauthorized {
				t.Errorf("%s %s: %d %s", name, path, a.code, a.body)
			}
		}
	}
	a := w.send(t, http.MethodGet, "/api", "Authorization", "")
	if !strings.Contains(a.header.Get("Warning"), "kubectl create token") {
		t.Errorf("the warning does not help: %v", a.header)
	}
	check.Equal(t, 0, len(w.worker.all()), "requests that the worker received")
	for _, r := range w.hub.all() {
		if token := r.header.Get("Authorization"); token != "Bearer other" {
			t.Errorf("the hub received %s %s with %q", r.method, r.uri, token)
		}
	}
}

// TestPollersWriteNothing: whatever clients read, neither the hub nor a worker gets a write but the questions who a caller
// is and what he may do, which are stored nowhere.
func TestPollersWriteNothing(t *testing.T) {
	w := newWorld(t, &workerServer{})
	const pods = "/api/v1/namespaces/team/pods"
	for range 100 {
		for _, path := range []string{pods, pods + "?limit=500&labelSelector=jobset.sigs.k8s.io%2Fjobset-name%3Djob", podURL, logURL, "/api/v1/namespaces/team/events"} {
			if a := w.send(t, http.MethodGet, path); a.code != http.StatusOK {
				t.Fatalf("%s: %d %s", path, a.code, a.body)
			}
		}
	}
	received := append(w.hub.all(), w.worker.all()...)
	if len(received) == 0 {
		t.Error("neither hub nor worker received anything")
	}
	for _, r := range received {
		if r.method != http.MethodGet && !strings.Contains(r.uri, "/selfsubjectaccessreviews?") && !strings.Contains(r.uri, "/selfsubjectreviews?") {
			t.Errorf("%s %s", r.method, r.uri)
		}
	}
}

// TestImpersonationIsTheHubs: only the hub says whether a caller may act as somebody else, and its answer is for that
// somebody.
func TestImpersonationIsTheHubs(t *testing.T) {
	w := newWorld(t, &workerServer{})
	w.send(t, http.MethodGet, logURL)
	w.send(t, http.MethodGet, logURL, "Impersonate-User", "eve")
	asked := map[string]bool{}
	for _, r := range w.hub.all() {
		if strings.Contains(r.uri, "selfsubjectaccessreviews") {
			asked[r.header.Get("Impersonate-User")] = true
		}
		check.Equal(t, "", r.header.Get("X-Remote-User"), "header of a request to the hub")
	}
	check.Diff(t, map[string]bool{"": true, "eve": true}, asked, "callers for whom the hub was asked")
}

// TestPaths: a path that leads elsewhere than it seems to never brings a worker a request for another pod.
func TestPaths(t *testing.T) {
	w := newWorld(t, &workerServer{})
	for _, path := range []string{
		"/api/v1/namespaces/team/pods/../../../nodes", "/api/v1/namespaces/team/pods/%2e%2e/%2e%2e/secrets/log", "/../healthz",
		"/api/v1/namespaces/team/pods/a%2Fb/log", "/api/v1/namespaces/team/pods/job-x%2F..%2F..%2Fkube-system%2Fpods%2Fetcd/log",
		"/api/v1/namespaces/team/pods/" + pod + "%3Fcontainer=x/log", "/api/v1/namespaces/team/pods/" + pod + "%00/log",
		"/api/v1/namespaces/team/pods/" + pod + "/proxy/secret", "/api/v1/namespaces/team/pods/" + pod + "/log/more", "/api/v1/proxy/namespaces/team/pods/" + pod,
		"/apis/v1/namespaces/team/pods/" + pod + "/log", "/api/v2/namespaces/team/pods/" + pod + "/log",
	} {
		a := w.send(t, http.MethodGet, path)
		if a.code == http.StatusOK {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	for _, r := range w.worker.all() {
		allowed := []string{"/api/v1/namespaces/kube-system", "/api/v1/namespaces/team/pods/" + pod}
		if !slices.Contains(allowed, r.uri) && !strings.Contains(r.uri, "/jobsets/job") && !strings.Contains(r.uri, "/trainjobs/job") {
			t.Errorf("the worker received %s %s", r.method, r.uri)
		}
	}
}

// TestPathIsDecodedFirst: as on an API server, a slash that is encoded divides a path. What is checked is what is sent.
func TestPathIsDecodedFirst(t *testing.T) {
	w := newWorld(t, &workerServer{})
	check.Equal(t, "printed\n", w.send(t, http.MethodGet, "/api/v1/namespaces/team%2Fpods/"+pod+"/log").body, "log")
	received := w.worker.all()
	check.Equal(t, logURL, received[len(received)-1].uri, "what the worker received last")
	for _, r := range w.hub.all() {
		for _, asked := range []string{"team", "get", "pods", "log", pod} {
			if strings.Contains(r.uri, "selfsubjectaccessreviews") && !strings.Contains(r.body, asked) {
				t.Errorf("the hub was not asked about %s: %q", asked, r.body)
			}
		}
	}
}

// TestForeignPods: a pod whose JobSet is not the copy's, or that the worker shows under another name, is not there.
func TestForeignPods(t *testing.T) {
	for name, s := range map[string]*workerServer{
		"OtherJobSet": {uid: "other-uid"},
		"OtherHub": {evil: func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/trainjobs/job") {
				return false
			}
			answerJSON(w, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{
				"name": "job", "namespace": "team", "uid": "copy-uid", "labels": map[string]string{"trainyard.dev/hub": "another", "trainyard.dev/origin-uid": "origin-uid"},
				"annotations": map[string]string{"trainyard.dev/attempt": "1"},
			}})
			return true
		}},
		"OtherAttempt": {evil: func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/trainjobs/job") {
				return false
			}
			answerJSON(w, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{
				"name": "job", "namespace": "team", "uid": "copy-uid", "labels": map[string]string{"trainyard.dev/hub": hubID, "trainyard.dev/origin-uid": "origin-uid"},
				"annotations": map[string]string{"trainyard.dev/attempt": "2"},
			}})
			return true
		}},
		"OtherName": {evil: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != podURL {
				return false
			}
			answerJSON(w, (&workerServer{uid: "jobset-uid"}).pod("kube-system", "etcd"))
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, s)
			for _, path := range []string{podURL, logURL} {
				if a := w.send(t, http.MethodGet, path); a.code != http.StatusNotFound {
					t.Errorf("%s: %d %s", path, a.code, a.body)
				}
			}
			if name != "OtherName" {
				if a := w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods"); strings.Contains(a.body, pod) {
					t.Errorf("the pod is listed: %s", a.body)
				}
			}
			for _, r := range w.worker.all() {
				if strings.HasSuffix(r.uri, "/log") {
					t.Errorf("the worker was asked for the log")
				}
			}
		})
	}
}

// TestEvilWorker: what a stolen worker answers harms neither the gateway nor its callers.
func TestEvilWorker(t *testing.T) {
	elsewhere := newRecorder(t, func(http.ResponseWriter, *http.Request) {})
	at := func(suffix string, answer http.HandlerFunc) *workerServer {
		return &workerServer{evil: func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, suffix) {
				answer(w, r)
				return true
			}
			return false
		}}
	}
	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}
	for name, tc := range map[string]struct {
		worker *workerServer
		path   string
		code   int
	}{
		"RedirectOfLog":      {at("/log", redirect), logURL, http.StatusServiceUnavailable},
		"RedirectOfPod":      {at("/"+pod, redirect), podURL, http.StatusServiceUnavailable},
		"RedirectOfList":     {at("/pods", redirect), "/api/v1/namespaces/team/pods", http.StatusOK},
		"RedirectOfIdentity": {at("/kube-system", redirect), podURL, http.StatusServiceUnavailable},
		"OtherCluster": {at("/kube-system", func(w http.ResponseWriter, _ *http.Request) {
			answerJSON(w, map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "kube-system", "uid": "another"}})
		}), podURL, http.StatusServiceUnavailable},
		"Cookies": {at("/log", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "a=b")
			w.Header().Set("Location", "https://example.com")
			w.Header().Set("Www-Authenticate", "Basic")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			_, _ = w.Write([]byte("printed\n"))
		}), logURL, http.StatusOK},
		"Unauthorized": {at("/log", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }), logURL, http.StatusForbidden},
		"NoList":       {at("/pods", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[1,2")) }), "/api/v1/namespaces/team/pods", http.StatusOK},
		"NullItems": {at("/pods", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1"},"items":[null,{},{"metadata":null},{"metadata":{"labels":null}}]}`))
		}), "/api/v1/namespaces/team/pods", http.StatusOK},
		"NullRows": {at("/pods", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"metadata":{},"columnDefinitions":null,"rows":[null,{"object":null},{"object":{"metadata":{}}}]}`))
		}), "/api/v1/namespaces/team/pods", http.StatusOK},
		"NullPod": {at("/"+pod, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("null")) }), podURL, http.StatusNotFound},
		"Endless": {at("/pods", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"items":["`))
			for chunk := []byte(strings.Repeat("x", 1<<20)); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}), "/api/v1/namespaces/team/pods", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.worker)
			a := w.send(t, http.MethodGet, tc.path)
			check.Equal(t, tc.code, a.code, "code: %s", a.body)
			for _, header := range []string{"Set-Cookie", "Location", "Www-Authenticate", "Access-Control-Allow-Origin"} {
				check.Equal(t, "", a.header.Get(header), "header %s", header)
			}
			if strings.Contains(a.body+fmt.Sprint(a.header), workerToken) || strings.Contains(a.body, elsewhere.URL) {
				t.Errorf("the answer shows too much: %s", a.body)
			}
		})
	}
	check.Equal(t, 0, len(elsewhere.all()), "requests that followed a redirect")
}

// TestForgedContinue: a token that continues a list is the hub's matter.
func TestForgedContinue(t *testing.T) {
	w := newWorld(t, &workerServer{})
	a := w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods?limit=1&continue=Zm9yZ2Vk")
	check.Equal(t, http.StatusOK, a.code, "code: %s", a.body)
	check.Equal(t, 0, len(w.worker.all()), "requests that the worker received")
	if last := w.hub.all(); !strings.Contains(last[len(last)-1].uri, "continue=Zm9yZ2Vk") {
		t.Errorf("the hub received %v", last)
	}
}
