// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// TestFirstRowsOfAWatch: a row that a worker has before the watch of a table begins comes in a table with columns.
func TestFirstRowsOfAWatch(t *testing.T) {
	hub := func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/pods") {
			hubServer(w, r)
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		check.Must(t, http.NewResponseController(w).Flush())
		<-r.Context().Done()
	}
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
	w := newWorld(t, &workerServer{hub: hub, evil: rows})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.gateway.URL+"/api/v1/namespaces/team/pods?watch=1", nil)
	check.Must(t, err)
	r.Header.Set("Authorization", "Bearer "+good)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	res, err := w.gateway.Client().Do(r)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	var event struct {
		Type   string
		Object struct {
			Kind              string
			ColumnDefinitions []struct{ Name string }
			Rows              []struct{ Cells []string }
		}
	}
	check.Must(t, json.NewDecoder(res.Body).Decode(&event))
	check.Equal(t, eventAdded, event.Type, "type")
	check.Equal(t, "Table", event.Object.Kind, "kind")
	if len(event.Object.ColumnDefinitions) != 1 || len(event.Object.Rows) != 1 || event.Object.Rows[0].Cells[0] != pod {
		t.Errorf("the table is %+v", event.Object)
	}
}
