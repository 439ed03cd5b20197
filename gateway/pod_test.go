// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/trainyard/trainyard/test/check"
)

// upgrade are the headers of a request that becomes a connection.
var upgrade = []string{"Connection", "Upgrade", "Upgrade", "websocket", headerProtocol, "v5.channel.k8s.io"}

func reviewIn(body string) (*authorizationv1.SelfSubjectAccessReview, error) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(body), nil, review)
	return review, err
}

// reviewsOf are what the hub was asked whether the caller may.
func reviewsOf(t *testing.T, w *world) (asked []authorizationv1.ResourceAttributes) {
	t.Helper()
	for _, r := range w.hub.all() {
		if !strings.Contains(r.uri, "selfsubjectaccessreviews") {
			continue
		}
		review, err := reviewIn(r.body)
		check.Must(t, err)
		asked = append(asked, *review.Spec.ResourceAttributes)
	}
	return asked
}

// TestReviews: for one pod the hub is asked about each verb that an API server would check, and about the name of the
// pod: a role can permit single pods by resourceNames.
func TestReviews(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		header       []string
		subresource  string
		verbs        []string
	}{
		"Get":             {method: http.MethodGet, path: podURL, verbs: []string{"get"}},
		"Log":             {method: http.MethodGet, path: logURL, subresource: "log", verbs: []string{"get"}},
		"ExecGet":         {method: http.MethodGet, path: podURL + "/exec?command=a", header: upgrade, subresource: "exec", verbs: []string{"create", "get"}},
		"ExecPost":        {method: http.MethodPost, path: podURL + "/exec?command=a", header: upgrade, subresource: "exec", verbs: []string{"create"}},
		"AttachGet":       {method: http.MethodGet, path: podURL + "/attach", header: upgrade, subresource: "attach", verbs: []string{"create", "get"}},
		"PortForwardGet":  {method: http.MethodGet, path: podURL + "/portforward", header: upgrade, subresource: "portforward", verbs: []string{"create", "get"}},
		"PortForwardPost": {method: http.MethodPost, path: podURL + "/portforward", header: upgrade, subresource: "portforward", verbs: []string{"create"}},
		"Change":          {method: http.MethodDelete, path: podURL, verbs: []string{"get"}},
		"Evict":           {method: http.MethodPost, path: podURL + "/eviction", verbs: []string{"get"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{})
			w.send(t, tc.method, tc.path, tc.header...)
			var want []authorizationv1.ResourceAttributes
			for _, verb := range tc.verbs {
				want = append(want, authorizationv1.ResourceAttributes{
					Verb: verb, Version: "v1", Resource: "pods", Subresource: tc.subresource, Namespace: "team", Name: pod,
				})
			}
			check.Diff(t, want, reviewsOf(t, w), "reviews")
		})
	}
}

// TestOneVerbIsNotEnough: who may only create or only get exec reaches no pod of a worker by GET.
func TestOneVerbIsNotEnough(t *testing.T) {
	for _, verb := range []string{"create", "get"} {
		w := newWorld(t, &workerServer{hub: func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // The recorder has read it before.
			review, err := reviewIn(string(body))
			if err != nil { // It is another request.
				hubServer(w, r)
				return
			}
			review.Status.Allowed = review.Spec.ResourceAttributes.Verb == verb
			answerJSON(w, review)
		}})
		w.send(t, http.MethodGet, podURL+"/exec?command=a", upgrade...)
		check.Equal(t, 0, len(w.worker.all()), "requests to the worker of who may only %s", verb)
		last := w.hub.all()
		check.Equal(t, podURL+"/exec?command=a", last[len(last)-1].uri, "last request to the hub, which says why not")
	}
}

// TestNoRetryAfter: a 503 for a worker that does not answer has no Retry-After. kubectl would be silent and ask again.
func TestNoRetryAfter(t *testing.T) {
	w := newWorld(t, &workerServer{answerTimeout: 100 * time.Millisecond, evil: func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}})
	for _, path := range []string{podURL, logURL, podURL + "/exec?command=a"} {
		a := w.send(t, http.MethodGet, path)
		check.Equal(t, http.StatusServiceUnavailable, a.code, "code of %s: %s", path, a.body)
		check.Equal(t, 0, len(a.header.Values("Retry-After")), "headers Retry-After of %s", path)
		if !strings.Contains(a.body, `worker \"east\" does not answer`) {
			t.Errorf("%s: the answer is %s", path, a.body)
		}
	}
}

// TestMergedAnswersAreNotEncoded: what is merged is read here, so no server is asked for an encoding that the caller takes.
func TestMergedAnswersAreNotEncoded(t *testing.T) {
	w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: func(w http.ResponseWriter, r *http.Request) bool {
		return r.URL.Query().Get("watch") != "" && watched(nil)(w, r)
	}})
	const encoding = "Accept-Encoding"
	a := w.send(t, http.MethodGet, podsURL, encoding, "gzip, br")
	check.Equal(t, "", a.header.Get("Content-Encoding"), "encoding of the answer")
	w.send(t, http.MethodGet, podURL, encoding, "gzip, br")
	w.watch(t, podsURL+"?watch=1", encoding, "gzip, br").next(t)
	received := slices.Concat(w.hub.all(), w.worker.all())
	if len(received) < 6 {
		t.Errorf("there are only %d requests", len(received))
	}
	for _, r := range received {
		if got := r.header.Get(encoding); strings.Contains(got, "br") || strings.Contains(r.uri, "/pods") && got != "" {
			t.Errorf("%s %s asks for %q", r.method, r.uri, got)
		}
	}
}
