// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
)

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
