// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const (
	podsURL     = "/api/v1/namespaces/team/pods"
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// TestFirstRowsOfAWatch: a row that a worker has before the watch of a table begins comes in a table with columns.
func TestFirstRowsOfAWatch(t *testing.T) {
	rows := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/namespaces/team/pods" || r.URL.Query().Get("watch") != "" {
			return false
		}
		answerJSON(w, map[string]any{
			"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "9"},
			"columnDefinitions": []any{map[string]any{"name": "Name"}},
			"rows":              []any{map[string]any{"cells": []any{pod}, "object": (&workerServer{uid: "jobset-uid"}).pod("team", pod)}},
		})
		return true
	}
	w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: rows})
	event := w.watch(t, "/api/v1/namespaces/team/pods?watch=1", "Accept", acceptTable).next(t)
	check.Equal(t, eventAdded, event.Type, "type")
	check.Equal(t, "Table", event.Object.Kind, "kind")
	if len(event.Object.ColumnDefinitions) != 1 || len(event.Object.Rows) != 1 || event.Object.Rows[0].Cells[0] != pod {
		t.Errorf("the table is %+v", event.Object)
	}
}

// TestOldPathOfAWatch: a watch with the verb in its path lists the worker's pods as any other does, and asks both servers
// in the form that clients use today. On an API server the old path answers a list with an endless watch.
func TestOldPathOfAWatch(t *testing.T) {
	for name, tc := range map[string]struct{ path, hub, worker string }{
		"All":        {"/api/v1/watch/namespaces/team/pods", podsURL + "?watch=true", ""},
		"One":        {"/api/v1/watch/namespaces/team/pods/" + pod, podsURL + "?fieldSelector=metadata.name%3D" + pod + "&watch=true", "metadata.name=" + pod},
		"OneAndMore": {"/api/v1/watch/namespaces/team/pods/" + pod + "?fieldSelector=spec.nodeName%3Da", podsURL + "?fieldSelector=metadata.name%3D" + pod + "%2Cspec.nodeName%3Da&watch=true", "metadata.name=" + pod + ",spec.nodeName=a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: watched(nil)})
			event := w.watch(t, tc.path).next(t)
			check.Equal(t, eventAdded+" "+pod, describe(event), "event")
			var toHub []string
			for _, r := range w.hub.all() {
				if strings.Contains(r.uri, "/pods") {
					toHub = append(toHub, r.uri)
				}
			}
			check.Diff(t, []string{tc.hub}, toHub, "requests for pods at the hub")
			for _, r := range w.worker.all() {
				u, err := url.Parse(r.uri)
				check.Must(t, err)
				if strings.Contains(u.Path, "/pods") {
					check.Equal(t, podsURL, u.Path, "path at the worker")
					check.Equal(t, tc.worker, u.Query().Get("fieldSelector"), "selector at the worker")
				}
			}
		})
	}
}

// TestVersionOfDeletions: an event about a pod that is gone says from which worker the pod was, and has a version at which
// a watch goes on, whether the worker deletes the pod or the job leaves the worker.
func TestVersionOfDeletions(t *testing.T) {
	uids := &workerServer{uid: "jobset-uid"}
	deleted := uids.pod("team", pod)
	deleted.ResourceVersion = "12"
	for name, tc := range map[string]struct {
		query string
		// shown says that the client gets the pod first.
		shown bool
		end   func(w *world, events chan<- any)
		want  string
	}{
		"Resumed": {query: "&resourceVersion=trainyard/:7/east:5", end: func(_ *world, events chan<- any) {
			events <- map[string]any{"type": eventDeleted, "object": deleted}
		}, want: "trainyard/:7/east:12"},
		"Shown": {query: "&resourceVersion=trainyard/:7", shown: true, end: func(_ *world, events chan<- any) {
			events <- map[string]any{"type": eventDeleted, "object": deleted}
		}, want: "trainyard/:7/east:12"},
		"Left": {query: "&resourceVersion=trainyard/:7", shown: true, end: func(w *world, _ chan<- any) {
			w.place(t, "", "", 1)
		}, want: "trainyard/:7/east:9"},
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan any)
			w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: watched(events)})
			c := w.watch(t, podsURL+"?watch=1"+tc.query)
			if tc.shown {
				check.Equal(t, eventAdded+" "+pod, describe(c.next(t)), "first event")
			}
			tc.end(w, events)
			event := c.next(t)
			check.Equal(t, eventDeleted+" "+pod, describe(event), "event")
			check.Equal(t, tc.want, event.Object.ResourceVersion, "version")
			check.Equal(t, "east", event.Object.Labels[v1alpha1.LabelCluster], "label of the cluster")
		})
	}
}

// describe is the type of an event and the name of its object.
func describe(event seen) string { return event.Type + " " + event.Object.Name }

// TestNoWatchGoesOnBetweenChanges: when a job with several pods leaves its worker, only the last event has a version at
// which a watch goes on. No server would send the end of the other pods again.
func TestNoWatchGoesOnBetweenChanges(t *testing.T) {
	w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: watched(nil), pods: []string{"job-a", "job-b"}})
	c := w.watch(t, podsURL+"?watch=1&resourceVersion=trainyard/:7")
	for _, name := range []string{"job-a", "job-b"} {
		check.Equal(t, eventAdded+" "+name, describe(c.next(t)), "event")
	}
	w.place(t, "", "", 1)
	var got []string
	for range 2 {
		event := c.next(t)
		check.Equal(t, eventDeleted, event.Type, "type")
		got = append(got, event.Object.ResourceVersion)
	}
	check.Diff(t, []string{"trainyard/:0", "trainyard/:7/east:9"}, got, "versions")
	check.Equal(t, http.StatusGone, w.watch(t, podsURL+"?watch=1&resourceVersion="+got[0]).answer.code, "code of a watch that goes on in between")
}

// bookmark is the hub's bookmark at version 7, after the first objects or later.
func bookmark(afterFirst bool) map[string]any {
	metadata := map[string]any{"resourceVersion": "7"}
	if afterFirst {
		metadata["annotations"] = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return map[string]any{"type": eventBookmark, "object": map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": metadata}}
}

// TestFirstObjectsAgain: an informer whose watch has failed asks for all objects again, at the version that it has, and
// forgets what does not come before the bookmark.
func TestFirstObjectsAgain(t *testing.T) {
	for _, version := range []string{"", "trainyard/:6/east:5", "trainyard/east:5"} {
		events := make(chan any, 1)
		events <- bookmark(true)
		w := newWorld(t, &workerServer{hub: watchedHub(events), evil: watched(nil)})
		c := w.watch(t, podsURL+"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="+version)
		check.Equal(t, eventAdded+" "+pod, describe(c.next(t)), "first event at version %q", version)
		last := c.next(t)
		check.Equal(t, eventBookmark, last.Type, "second event at version %q", version)
		check.Equal(t, "trainyard/:7/east:9", last.Object.ResourceVersion, "version")
		for _, r := range w.hub.all() {
			if strings.Contains(r.uri, "sendInitialEvents") && !strings.Contains(r.uri, "resourceVersionMatch=NotOlderThan") {
				t.Errorf("an API server refuses %s", r.uri)
			}
		}
	}
}

// TestWarningOfAWatch: a watch names a worker that does not answer, and goes on. It does not wait for others.
func TestWarningOfAWatch(t *testing.T) {
	hang := func(path string) func(http.ResponseWriter, *http.Request) bool {
		return func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, path) {
				<-r.Context().Done()
			}
			return strings.HasSuffix(r.URL.Path, path)
		}
	}
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			w.WriteHeader(http.StatusForbidden)
			answerJSON(w, status(http.StatusForbidden, metav1.StatusReasonForbidden, "no pods for you"))
		}
		return strings.HasSuffix(r.URL.Path, "/pods")
	}
	for name, tc := range map[string]struct {
		evil    func(http.ResponseWriter, *http.Request) bool
		version string
		want    string
	}{
		"NoConnection": {evil: hang("/kube-system"), want: `worker "east" does not answer in 100ms`},
		"NoList":       {evil: hang("/pods"), want: `worker "east" does not answer in 100ms`},
		"NoWatch":      {evil: hang("/pods"), version: "trainyard/:7/east:5", want: `worker "east" does not answer in 100ms`},
		"Refused":      {evil: refuse, want: `worker "east" refuses: no pods for you`},
		"Answers":      {evil: watched(nil)},
		"AnswersWatch": {evil: watched(nil), version: "trainyard/:7/east:5"},
	} {
		t.Run(name, func(t *testing.T) {
			events := make(chan any, 1)
			events <- bookmark(false)
			s := &workerServer{hub: watchedHub(events), evil: tc.evil, answerTimeout: time.Hour} // Who waits for that fails the test.
			if strings.Contains(tc.want, "100ms") {
				s.answerTimeout = 100 * time.Millisecond
			}
			w := newWorld(t, s)
			c := w.watch(t, podsURL+"?watch=1&allowWatchBookmarks=true&resourceVersion="+tc.version)
			check.Equal(t, http.StatusOK, c.answer.code, "code")
			warnings := c.answer.header.Values("Warning")
			if tc.want == "" {
				check.Equal(t, 0, len(warnings), "warnings: %v", warnings)
			} else if len(warnings) != 1 || !strings.Contains(warnings[0], strings.ReplaceAll(tc.want, `"`, `\"`)) {
				t.Errorf("the warnings are %v, want %s", warnings, tc.want)
			}
			event := c.next(t)
			if event.Type == eventAdded {
				event = c.next(t)
			}
			check.Equal(t, eventBookmark, event.Type, "event")
		})
	}
}

// TestWatchOfOtherWorkers: a watch that leaves a worker out goes on at its versions.
func TestWatchOfOtherWorkers(t *testing.T) {
	events := make(chan any, 1)
	w := newWorld(t, &workerServer{hub: watchedHub(events), evil: watched(nil)})
	const query = "?watch=1&allowWatchBookmarks=true&labelSelector=trainyard.dev%2Fcluster%3Dwest&resourceVersion="
	events <- bookmark(false)
	version := w.watch(t, podsURL+query).next(t).Object.ResourceVersion
	check.Equal(t, "trainyard/:7", version, "version")
	check.Equal(t, http.StatusOK, w.watch(t, podsURL+query+version).answer.code, "code of the watch that goes on")
}

// TestWatchAfterAMove: no watch goes on at a version of a worker that the job has left meanwhile. Nobody would tell the
// client that the pods there are gone.
func TestWatchAfterAMove(t *testing.T) {
	w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: watched(nil)})
	const again = podsURL + "?watch=1&resourceVersion=trainyard/:7/east:9"
	check.Equal(t, http.StatusOK, w.watch(t, again).answer.code, "code while the job is there")
	w.place(t, "", "", 1)
	check.Equal(t, http.StatusGone, w.watch(t, again).answer.code, "code after the job has left")
	check.Equal(t, http.StatusOK, w.watch(t, podsURL+"?watch=1&resourceVersion=trainyard/:7").answer.code, "code at the version of a new list")
}

// TestTablesHaveNoFirstObjects: a watch of a table that begins with all objects is refused, as no client asks for one.
func TestTablesHaveNoFirstObjects(t *testing.T) {
	w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: watched(nil)})
	for query, want := range map[string]int{
		"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": http.StatusUnprocessableEntity,
		"&sendInitialEvents=1":     http.StatusUnprocessableEntity,
		"&sendInitialEvents=false": http.StatusOK,
		"":                         http.StatusOK,
	} {
		check.Equal(t, want, w.watch(t, podsURL+"?watch=1"+query, "Accept", acceptTable).answer.code, "code of a table with %q", query)
	}
	check.Equal(t, http.StatusOK, w.watch(t, podsURL+"?watch=1&sendInitialEvents=true").answer.code, "code of objects")
}

// TestFailedWatchOfAWorker: whatever a worker answers to a watch, the client gets nothing of it, and its watch goes on when
// the worker answers again.
func TestFailedWatchOfAWorker(t *testing.T) {
	failure := func(code int32, reason metav1.StatusReason) *metav1.Status {
		return status(code, reason, "words of the worker")
	}
	event := func(object any) string {
		text, err := json.Marshal(map[string]any{"type": eventError, "object": object})
		check.Must(t, err)
		return string(text)
	}
	for name, tc := range map[string]struct {
		code int
		body string
	}{
		"Gone":         {code: http.StatusGone, body: `{"kind":"Status","code":410,"reason":"Expired"}`},
		"GoneEvent":    {code: http.StatusOK, body: event(failure(http.StatusGone, metav1.StatusReasonExpired))},
		"ErrorEvent":   {code: http.StatusOK, body: event(failure(http.StatusInternalServerError, metav1.StatusReasonInternalError))},
		"NoStatus":     {code: http.StatusOK, body: event("words of the worker")},
		"Forbidden":    {code: http.StatusForbidden, body: `{"kind":"Status","code":403,"reason":"Forbidden","message":"words of the worker"}`},
		"Unauthorized": {code: http.StatusUnauthorized, body: "words of the worker"},
		"Garbage":      {code: http.StatusOK, body: "<html>words of the worker</html>"},
		"OtherJSON":    {code: http.StatusOK, body: `["words of the worker"]`},
		"OtherObject":  {code: http.StatusOK, body: `{"type":"MODIFIED","object":"words of the worker"}`},
		"NoObject":     {code: http.StatusOK, body: `{"type":"ADDED","object":null}`},
		"Cut":          {code: http.StatusOK, body: `{"type":"MODIFIED","object":{"metadata":{"name":"words of the worker"`},
		"Ended":        {code: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // Most wait for a second before they ask again.
			changed := (&workerServer{uid: "jobset-uid"}).pod("team", pod)
			changed.ResourceVersion = "20"
			events := make(chan any, 1)
			events <- map[string]any{"type": eventModified, "object": changed}
			var failed atomic.Bool
			w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: func(w http.ResponseWriter, r *http.Request) bool {
				if !isWatch(r) || failed.Swap(true) {
					return watched(events)(w, r)
				}
				w.Header().Set("Content-Type", typeJSON)
				w.WriteHeader(tc.code)
				_, _ = io.WriteString(w, tc.body)
				return true
			}})
			c := w.watch(t, podsURL+"?watch=1")
			check.Equal(t, eventAdded+" "+pod, describe(c.next(t)), "first event")
			check.Equal(t, eventModified+" "+pod, describe(c.next(t)), "event after the failure")
		})
	}
}

// TestMoveInAWatch: when a job moves to another worker, an open watch tells the end of its pods there, and then the pods of
// the new attempt. The versions name the old worker no longer.
func TestMoveInAWatch(t *testing.T) {
	const newPod = "job-node-0-0-fghij"
	hubEvents := make(chan any)
	w := newWorld(t, &workerServer{
		hub: watchedHub(hubEvents), evil: watched(nil),
		west: &workerServer{attempt: "2", pods: []string{newPod}, evil: watched(nil)},
	})
	c := w.watch(t, podsURL+"?watch=1&allowWatchBookmarks=true&resourceVersion=trainyard/:7")
	check.Equal(t, eventAdded+" "+pod, describe(c.next(t)), "first event")
	w.place(t, "west", westID, 2)
	last := c.next(t)
	check.Equal(t, eventDeleted+" "+pod, describe(last), "event of the old attempt")
	check.Equal(t, "east", last.Object.Labels[v1alpha1.LabelCluster], "its worker")
	first := c.next(t)
	check.Equal(t, eventAdded+" "+newPod, describe(first), "event of the new attempt")
	check.Equal(t, "west", first.Object.Labels[v1alpha1.LabelCluster], "its worker")
	hubEvents <- bookmark(false)
	event := c.next(t)
	check.Equal(t, eventBookmark, event.Type, "event after all")
	check.Equal(t, "trainyard/:7/west:9", event.Object.ResourceVersion, "version")
}

// TestRowsWithoutObjects: a client that asks for the cells of a table gets nothing else, also of a pod that is gone. The
// servers are asked for metadata, which says whose a pod is.
func TestRowsWithoutObjects(t *testing.T) {
	rowsOf := func(version string) map[string]any {
		shown := (&workerServer{uid: "jobset-uid"}).pod("team", pod)
		shown.ResourceVersion = version
		return map[string]any{
			"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "9"}, "columnDefinitions": []any{map[string]any{"name": "Name"}},
			"rows": []any{map[string]any{"cells": []any{pod}, "object": shown}},
		}
	}
	empty := map[string]any{
		"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "7"}, "columnDefinitions": []any{map[string]any{"name": "Name"}}, "rows": []any{},
	}
	for include, object := range map[string]string{"None": "", "Metadata": "PartialObjectMetadata", "": "PartialObjectMetadata", "Object": kindPod} {
		events := make(chan any, 1)
		events <- map[string]any{"type": eventDeleted, "object": rowsOf("12")}
		hub, worker := watchedHub(nil), watched(events)
		w := newWorld(t, &workerServer{
			hub: func(w http.ResponseWriter, r *http.Request) {
				if isWatch(r) || r.URL.Path != podsURL {
					hub(w, r)
					return
				}
				answerJSON(w, empty)
			},
			evil: func(w http.ResponseWriter, r *http.Request) bool {
				if worker(w, r) {
					return true
				}
				if r.URL.Path == podsURL {
					answerJSON(w, rowsOf("5"))
				}
				return r.URL.Path == podsURL
			},
		})
		has := func(what, kind, version string, got seen) {
			t.Helper()
			if len(got.Object.Rows) != 1 || !slices.Equal(got.Object.Rows[0].Cells, []string{pod}) {
				t.Fatalf("%s with includeObject %q has the rows %v", what, include, got.Object.Rows)
			}
			row := got.Object.Rows[0].Object
			if kind == "" {
				check.Equal(t, true, row == nil, "%s with includeObject %q has no object: %v", what, include, row)
				return
			}
			check.Equal(t, kind+" "+pod+" east "+version, row.Kind+" "+row.Name+" "+row.Labels[v1alpha1.LabelCluster]+" "+row.ResourceVersion,
				"object of %s with includeObject %q", what, include)
		}
		var list seen
		check.Must(t, json.Unmarshal([]byte(w.send(t, http.MethodGet, podsURL+"?includeObject="+include, "Accept", acceptTable).body), &list.Object))
		has("a list", object, "trainyard/east:5", list)
		c := w.watch(t, podsURL+"?watch=1&includeObject="+include+"&resourceVersion=trainyard/:7", "Accept", acceptTable)
		has("an event", object, "trainyard/:7/east:0", c.next(t))
		has("the last event", object, "trainyard/:7/east:12", c.next(t))
		for _, r := range slices.Concat(w.hub.all(), w.worker.all()) {
			if u, _ := url.Parse(r.uri); include == "None" && u.Path == podsURL {
				check.Equal(t, "Metadata", u.Query().Get("includeObject"), "asked with %s", r.uri)
			}
		}
	}
}
