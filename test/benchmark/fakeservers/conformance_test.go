// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/test/benchmark/fakeservers"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	jobsPath = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/conform/trainjobs"
	runtimes = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
	mergeIt  = "application/merge-patch+json"
	applyIt  = "application/apply-patch+yaml"
	partial  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partials = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	// waitLimit is for a real API server on a busy machine.
	waitLimit = time.Minute
)

var shared = stage.Share(func(context.Context, *stage.Stage) error { return nil }, "worker")

func TestMain(m *testing.M) { shared.Main(m) }

// step is a request. Names in braces stand for what earlier answers had: {uid} and {rv} are the UID and the version of
// the last object.
type step struct {
	name        string
	method      string // GET if empty
	path        string
	body        string
	contentType string // JSON if empty
	accept      string
	// want is the code that both must answer.
	want int
	// forget says that the answer is not the last object.
	forget bool
	// codeOnly says that the rest of the answer may differ.
	codeOnly bool
}

// trainJob has everything that an API server would add to its spec.
func trainJob(name, more string) string {
	return fmt.Sprintf(`{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": %q, "labels": {"team": "a", "n": %q}%s},
		"spec": {"managedBy": "trainer.kubeflow.org/trainjob-controller", "suspend": false,
		"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch"}}}`, name, name, more)
}

var steps = []step{
	{name: "what there is", path: "/api/v1/namespaces/kube-system", want: 200},
	{name: "its metadata", path: "/api/v1/namespaces/kube-system", accept: partial, want: 200},
	{name: "version", path: "/version", want: 200},
	{name: "health", path: "/readyz", want: 200, codeOnly: true},
	{name: "core groups", path: "/api", want: 200, codeOnly: true},
	{name: "groups", path: "/apis", want: 200, codeOnly: true},
	{name: "group", path: "/apis/trainer.kubeflow.org", want: 200},
	{name: "no group", path: "/apis/nothing.example.com/v1", want: 404, codeOnly: true},
	{name: "no resource", path: "/apis/trainer.kubeflow.org/v1alpha1/nothings", want: 404, codeOnly: true},
	{name: "no subresource", path: "/api/v1/namespaces/kube-system/nothing", want: 404, codeOnly: true},

	{name: "no namespace", method: "POST", path: jobsPath, body: trainJob("first", ""), want: 404},
	{name: "create namespace", method: "POST", path: "/api/v1/namespaces", body: `{"metadata": {"name": "conform", "labels": {"x": "y"}}}`, want: 201},
	{name: "namespace exists", method: "POST", path: "/api/v1/namespaces", body: `{"metadata": {"name": "conform"}}`, want: 409},
	{name: "bad name", method: "POST", path: "/api/v1/namespaces", body: `{"metadata": {"name": "Con form"}}`, want: 422},
	{name: "empty name", method: "POST", path: jobsPath, body: `{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {}, "spec": {}}`, want: 422, codeOnly: true},
	{name: "no JSON", method: "POST", path: jobsPath, body: `{"metadata":`, want: 400, codeOnly: true},
	{name: "wrong namespace", method: "POST", path: jobsPath, body: trainJob("first", `, "namespace": "default"`), want: 400},

	{name: "create", method: "POST", path: jobsPath + "?fieldManager=test&fieldValidation=Strict", body: trainJob("first", ""), want: 201},
	{name: "exists", method: "POST", path: jobsPath, body: trainJob("first", ""), want: 409, forget: true},
	{name: "unknown field, strictly", method: "POST", path: jobsPath + "?fieldValidation=Strict", body: strings.Replace(trainJob("second", ""), `"suspend"`, `"nonsense": 1, "suspend"`, 1), want: 400, forget: true},
	{name: "unknown field", method: "POST", path: jobsPath + "?fieldValidation=Ignore", body: strings.Replace(trainJob("pruned", ""), `"suspend"`, `"nonsense": 1, "suspend"`, 1), want: 201, forget: true},
	{name: "create with a status", method: "POST", path: jobsPath, body: strings.Replace(trainJob("second", ""), `"spec"`, `"status": {"conditions": []}, "spec"`, 1), want: 201, forget: true},
	{name: "delete it", method: "DELETE", path: jobsPath + "/second", want: 200, forget: true},
	{name: "get", path: jobsPath + "/first", want: 200},
	{name: "get metadata", path: jobsPath + "/first", accept: partial, want: 200},
	{name: "get nothing", path: jobsPath + "/nothing", want: 404, forget: true},

	{name: "merge", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"metadata": {"annotations": {"a": "b"}, "labels": {"team": null, "more": "yes"}}}`, want: 200},
	{name: "merge with the right version", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"metadata": {"resourceVersion": "{rv}"}, "spec": {"suspend": true}}`, want: 200},
	{name: "merge with an old version", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"metadata": {"resourceVersion": "1"}, "spec": {"suspend": false}}`, want: 409, forget: true},
	{name: "merge with another UID", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"metadata": {"uid": "other"}, "spec": {"suspend": false}}`, want: 422, forget: true},
	{name: "merge that changes nothing", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"spec": {"suspend": true}}`, want: 200},
	{name: "merge a status", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"status": {"conditions": []}}`, want: 200},
	{name: "merge another name", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"metadata": {"name": "other"}}`, want: 400, codeOnly: true, forget: true},
	{name: "merge nothing", method: "PATCH", path: jobsPath + "/nothing", contentType: mergeIt, body: `{}`, want: 404, forget: true},
	{name: "strategic merge", method: "PATCH", path: jobsPath + "/first", contentType: "application/strategic-merge-patch+json", body: `{}`, want: 415, codeOnly: true, forget: true},
	{name: "status", method: "PATCH", path: jobsPath + "/first/status", contentType: mergeIt, want: 200, body: `{"spec": {"suspend": false}, "status": {"conditions": [
		{"type": "Suspended", "status": "True", "reason": "Suspended", "message": "so", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`},
	{name: "update without a version", method: "PUT", path: jobsPath + "/first", body: trainJob("first", ""), want: 422, codeOnly: true, forget: true},
	{name: "update with another UID", method: "PUT", path: jobsPath + "/first", body: trainJob("first", `, "resourceVersion": "{rv}", "uid": "other"`), want: 409, forget: true},
	{name: "update", method: "PUT", path: jobsPath + "/first", body: trainJob("first", `, "resourceVersion": "{rv}"`), want: 200},

	{name: "list", path: jobsPath, want: 200, forget: true},
	{name: "list metadata", path: jobsPath, accept: partials, want: 200, forget: true},
	{name: "list by label", path: jobsPath + "?labelSelector=n%3Dpruned", want: 200, forget: true},
	{name: "list by name", path: jobsPath + "?fieldSelector=metadata.name%3Dfirst", want: 200, forget: true},
	{name: "list by what cannot be", path: jobsPath + "?fieldSelector=spec.suspend%3Dtrue", want: 400, codeOnly: true, forget: true},
	{name: "list by no selector", path: jobsPath + "?labelSelector=a%3D%3D%3Db", want: 400, codeOnly: true, forget: true},
	{name: "list all namespaces", path: "/apis/trainer.kubeflow.org/v1alpha1/trainjobs?resourceVersion=0", want: 200, forget: true},
	{name: "list a page", path: jobsPath + "?limit=1", want: 200, forget: true},
	{name: "list none", path: "/apis/jobset.x-k8s.io/v1alpha2/jobsets", want: 200, forget: true},
	{name: "list by no version", path: jobsPath + "?resourceVersion=abc", want: 400, codeOnly: true, forget: true},

	{name: "apply what is new", method: "PATCH", path: runtimes + "/torch?fieldManager=test&force=true", contentType: applyIt, body: aRuntime("1"), want: 201},
	{name: "apply a change", method: "PATCH", path: runtimes + "/torch?fieldManager=test&force=true", contentType: applyIt, body: aRuntime("2"), want: 200},
	{name: "apply the same", method: "PATCH", path: runtimes + "/torch?fieldManager=test&force=true", contentType: applyIt, body: aRuntime("2"), want: 200},
	{name: "delete a runtime", method: "DELETE", path: runtimes + "/torch", want: 200, forget: true},

	{name: "get again", path: jobsPath + "/first", want: 200},
	{name: "delete another UID", method: "DELETE", path: jobsPath + "/first", body: `{"preconditions": {"uid": "other"}}`, want: 409, forget: true},
	{name: "delete an old version", method: "DELETE", path: jobsPath + "/first", body: `{"preconditions": {"resourceVersion": "1"}}`, want: 409, forget: true},
	{name: "delete in the foreground", method: "DELETE", path: jobsPath + "/first", body: `{"propagationPolicy": "Foreground", "preconditions": {"uid": "{uid}"}}`, want: 200},
	{name: "it is still there", path: jobsPath + "/first", want: 200},
	{name: "delete again", method: "DELETE", path: jobsPath + "/first?propagationPolicy=Foreground", want: 200},
	{name: "take off the finalizer", method: "PATCH", path: jobsPath + "/first", contentType: mergeIt, body: `{"metadata": {"finalizers": null}}`, want: 200},
	{name: "it is gone", path: jobsPath + "/first", want: 404, forget: true},
	{name: "delete nothing", method: "DELETE", path: jobsPath + "/first", want: 404, forget: true},
	{name: "delete at once", method: "DELETE", path: jobsPath + "/pruned", want: 200, forget: true},
}

func aRuntime(value string) string {
	return fmt.Sprintf(`{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch", "labels": {"v": %q}},
		"spec": {"template": {"spec": {"network": {"enableDNSHostnames": true}}}}}`, value)
}

// server is a server to which the steps are sent.
type server struct {
	config *rest.Config
	client *http.Client
	last   map[string]any
}

func newServer(t *testing.T, config *rest.Config) *server {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	check.Must(t, err)
	return &server{config: config, client: client}
}

func both(t *testing.T) (fake, real *server) {
	t.Helper()
	fleet, err := fakeservers.Start(fakeservers.Options{Workers: 1})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, fleet.Close()) })
	return newServer(t, fleet.Workers[0].Config), newServer(t, shared.Get(t).Workers[0].Cluster.Config)
}

func (s *server) open(t *testing.T, st step) *http.Response {
	t.Helper()
	filled := strings.NewReplacer("{uid}", metadata(s.last, "uid"), "{rv}", metadata(s.last, "resourceVersion"))
	method := st.method
	if method == "" {
		method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.config.Host+filled.Replace(st.path), strings.NewReader(filled.Replace(st.body)))
	check.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	if st.contentType != "" {
		request.Header.Set("Content-Type", st.contentType)
	}
	request.Header.Set("Accept", "application/json")
	if st.accept != "" {
		request.Header.Set("Accept", st.accept)
	}
	response, err := s.client.Do(request)
	check.Must(t, err)
	return response
}

// do sends a step and returns code and the constant part of the answer.
func (s *server) do(t *testing.T, st step) (code int, found map[string]any) {
	t.Helper()
	var response *http.Response
	eventually(t, "an answer that is not 429, as it is for a CRD that nobody has asked for before", func(g gomega.Gomega) {
		if response != nil {
			_ = response.Body.Close()
		}
		response = s.open(t, st)
		g.Expect(response.StatusCode).NotTo(gomega.Equal(http.StatusTooManyRequests))
	})
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	check.Must(t, err)
	body := map[string]any{}
	if err := json.Unmarshal(data, &body); err != nil && !st.codeOnly {
		t.Errorf("%s %s: %v in %q", s.config.Host, st.name, err, data)
	}
	if !st.forget && metadata(body, "uid") != "" {
		s.last = body
	}
	if st.codeOnly {
		return response.StatusCode, nil
	}
	return response.StatusCode, constantPart(body)
}

func metadata(object map[string]any, name string) string {
	value, _, _ := unstructured.NestedString(object, "metadata", name)
	return value
}

// constantPart returns the parts of an answer that have to be equal: everything except texts and what is new each time.
func constantPart(body map[string]any) map[string]any {
	switch kind, _ := body["kind"].(string); {
	case kind == "Status":
		return map[string]any{"kind": kind, "status": body["status"], "reason": body["reason"], "code": body["code"], "details": detailsOf(body)}
	case strings.HasSuffix(kind, "List") && body["items"] != nil:
		var items []any
		for _, item := range body["items"].([]any) {
			if name := metadata(item.(map[string]any), "name"); name == "first" || name == "pruned" {
				items = append(items, constantPart(item.(map[string]any)))
			}
		}
		more := metadata(body, "continue") != ""
		return map[string]any{"kind": kind, "apiVersion": body["apiVersion"], "items": items, "more": more, "version": metadata(body, "resourceVersion") != ""}
	case body["metadata"] == nil:
		delete(body, "buildDate")
		return map[string]any{"kind": kind, "name": body["name"], "versions": body["versions"], "gitVersion": body["gitVersion"]}
	}
	found := map[string]any{"status": body["status"], "spec": body["spec"], "kind": body["kind"], "apiVersion": body["apiVersion"]}
	for name, value := range body["metadata"].(map[string]any) {
		switch name {
		case "managedFields":
		case "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp":
			found[name] = value != ""
		default:
			found[name] = value
		}
	}
	return found
}

func detailsOf(status map[string]any) map[string]any {
	details, _ := status["details"].(map[string]any)
	return map[string]any{"name": details["name"], "group": details["group"], "kind": details["kind"]}
}

func (s *server) version() string { return metadata(s.last, "resourceVersion") }

func TestConformance(t *testing.T) {
	fake, real := both(t)
	for _, st := range steps {
		beforeFake, beforeReal := fake.version(), real.version()
		gotCode, got := fake.do(t, st)
		wantCode, want := real.do(t, st)
		if wantCode != st.want {
			t.Errorf("%s: a real API server answers %d, the test wants %d", st.name, wantCode, st.want)
		}
		if gotCode != wantCode {
			t.Errorf("%s: the fake answers %d, a real API server %d", st.name, gotCode, wantCode)
		}
		check.Diff(t, want, got, st.name)
		// The version shows whether something was written. Each server has its own versions.
		if a, b := beforeFake == fake.version(), beforeReal == real.version(); a != b {
			t.Errorf("%s: the version is the same as before: fake %t, real %t", st.name, a, b)
		}
	}
}

const watchPath = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/watched/trainjobs"

// events are what a watch has brought.
type events struct {
	t      *testing.T
	closed chan struct{}
	next   chan map[string]any
}

// watch opens a watch, which ends with the test.
func (s *server) watch(t *testing.T, st step) (code int, e *events) {
	t.Helper()
	response := s.open(t, st)
	e = &events{t: t, closed: make(chan struct{}), next: make(chan map[string]any, 100)}
	t.Cleanup(func() { _ = response.Body.Close(); <-e.closed })
	go func() {
		defer close(e.closed)
		for decoder := json.NewDecoder(response.Body); ; {
			event := map[string]any{}
			if decoder.Decode(&event) != nil {
				return
			}
			e.next <- event
		}
	}()
	return response.StatusCode, e
}

// take returns the constant parts of the next events.
func (e *events) take(count int) []map[string]any {
	e.t.Helper()
	var all []map[string]any
	for range count {
		select {
		case event := <-e.next:
			object, _ := event["object"].(map[string]any)
			all = append(all, map[string]any{"type": event["type"], "object": constantPart(object)})
		case <-time.After(waitLimit):
			e.t.Fatalf("%d of %d events came: %v", len(all), count, all)
		}
	}
	return all
}

func label(value string) step {
	return step{name: "label " + value, method: "PATCH", path: watchPath + "/watched", contentType: mergeIt, body: `{"metadata": {"labels": {"team": "` + value + `"}}}`, want: 200}
}

// A watch brings what the selector lets through, from the version of a list on.
func TestWatchConformance(t *testing.T) {
	fake, real := both(t)
	tests := map[string]struct {
		reason string
		query  string
		accept string
		count  int
	}{
		"Selected":     {reason: "what leaves the selection is deleted, and added when it comes back", query: "resourceVersion={rv}&labelSelector=team%3Da", count: 5},
		"All":          {reason: "without a selector nothing leaves it", query: "resourceVersion={rv}", count: 5},
		"Metadata":     {reason: "metadata only", query: "resourceVersion={rv}", accept: partial, count: 5},
		"Named":        {reason: "one object", query: "resourceVersion={rv}&fieldSelector=metadata.name%3Dwatched", count: 5},
		"NoVersion":    {reason: "what there is comes first", query: "allowWatchBookmarks=false", count: 6},
		"AnyVersion":   {reason: "what there is comes first", query: "resourceVersion=0", count: 6},
		"Streamed":     {reason: "a list as a stream, with a bookmark at its end", query: "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", count: 7},
		"StreamedMeta": {reason: "the same of metadata", query: "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept: partial, count: 7},
	}
	prepare := []step{
		{name: "namespace", method: "POST", path: "/api/v1/namespaces", body: `{"metadata": {"name": "watched"}}`, want: 201},
		{name: "old", method: "POST", path: watchPath, body: trainJob("first", ""), want: 201},
	}
	changes := []step{
		{name: "create", method: "POST", path: watchPath, body: trainJob("watched", ""), want: 201},
		label("c"), label("a"),
		{name: "delete in the foreground", method: "DELETE", path: watchPath + "/watched", body: `{"propagationPolicy": "Foreground"}`, want: 200},
		{name: "end", method: "PATCH", path: watchPath + "/watched", contentType: mergeIt, body: `{"metadata": {"finalizers": null}}`, want: 200},
	}
	found := map[*server]map[string][]map[string]any{}
	for _, s := range []*server{fake, real} {
		found[s] = map[string][]map[string]any{}
		for _, st := range prepare {
			if code, _ := s.do(t, st); code != st.want {
				t.Fatalf("%s: code %d", st.name, code)
			}
		}
		watches := map[string]*events{}
		for name, tc := range tests {
			accept := tc.accept
			code, e := s.watch(t, step{name: name, path: watchPath + "?watch=true&" + tc.query, accept: accept})
			if code != 200 {
				t.Fatalf("%s: code %d", name, code)
			}
			watches[name] = e
		}
		for _, st := range changes {
			if code, _ := s.do(t, st); code != st.want {
				t.Fatalf("%s: code %d", st.name, code)
			}
		}
		for name, tc := range tests {
			found[s][name] = watches[name].take(tc.count)
		}
	}
	for name, tc := range tests {
		check.Diff(t, found[real][name], found[fake][name], fmt.Sprintf("%s: %s", name, tc.reason))
	}
}

// Watches that cannot be.
func TestWatchRefusals(t *testing.T) {
	fake, real := both(t)
	tests := map[string]struct {
		reason string
		query  string
	}{
		"Old":           {reason: "what happened since is forgotten", query: "resourceVersion=1"},
		"NoMatch":       {reason: "which version a streamed list may have has to be said", query: "sendInitialEvents=true"},
		"Selector":      {reason: "a field that cannot be selected by", query: "fieldSelector=spec.suspend%3Dtrue"},
		"EndsInASecond": {reason: "the stream ends by itself", query: "timeoutSeconds=1&fieldSelector=metadata.name%3Dnothing"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := step{name: name, path: "/apis/trainer.kubeflow.org/v1alpha1/trainjobs?watch=true&" + tc.query, forget: true}
			gotCode, got := fake.drain(t, st)
			wantCode, want := real.drain(t, st)
			if gotCode != wantCode {
				t.Errorf("%s: the fake answers %d, a real API server %d", tc.reason, gotCode, wantCode)
			}
			check.Diff(t, want, got, tc.reason)
		})
	}
}

// drain returns the events until a stream ends by itself: type, reason and code.
func (s *server) drain(t *testing.T, st step) (code int, all []string) {
	t.Helper()
	response := s.open(t, st)
	defer response.Body.Close()
	for decoder := json.NewDecoder(response.Body); ; {
		event := map[string]any{}
		if decoder.Decode(&event) != nil {
			return response.StatusCode, all
		}
		text, err := json.Marshal([]any{event["type"], event["reason"], event["code"]})
		check.Must(t, err)
		if object, ok := event["object"].(map[string]any); ok {
			text = []byte(strings.TrimSpace(event["type"].(string) + " " + object["reason"].(string)))
		}
		all = append(all, string(text))
	}
}
