// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

const acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

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
	const pods = "/api/v1/namespaces/team/pods"
	for name, tc := range map[string]struct{ path, hub, worker string }{
		"All":        {"/api/v1/watch/namespaces/team/pods", pods + "?watch=true", ""},
		"One":        {"/api/v1/watch/namespaces/team/pods/" + pod, pods + "?fieldSelector=metadata.name%3D" + pod + "&watch=true", "metadata.name=" + pod},
		"OneAndMore": {"/api/v1/watch/namespaces/team/pods/" + pod + "?fieldSelector=spec.nodeName%3Da", pods + "?fieldSelector=metadata.name%3D" + pod + "%2Cspec.nodeName%3Da&watch=true", "metadata.name=" + pod + ",spec.nodeName=a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{hub: watchedHub(nil), evil: watched(nil)})
			event := w.watch(t, tc.path).next(t)
			check.Equal(t, eventAdded+" "+pod, event.Type+" "+event.Object.Name, "event")
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
					check.Equal(t, pods, u.Path, "path at the worker")
					check.Equal(t, tc.worker, u.Query().Get("fieldSelector"), "selector at the worker")
				}
			}
		})
	}
}
