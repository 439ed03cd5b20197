// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// eventWriter writes the events of a watch.
type eventWriter struct {
	to      *http.ResponseController
	encoder *json.Encoder
	w       http.ResponseWriter
	table   bool
	// columns is true once a table with columns was written. Only the first of a watch has them.
	columns bool
}

func newEventWriter(w http.ResponseWriter, q *question) *eventWriter {
	return &eventWriter{w: w, to: http.NewResponseController(w), encoder: json.NewEncoder(w), table: q.form.table}
}

// begin sends the header.
func (e *eventWriter) begin() error {
	e.w.Header().Set("Content-Type", typeJSON)
	e.w.WriteHeader(http.StatusOK)
	return e.flush()
}

func (e *eventWriter) flush() error { return e.to.Flush() }

func (e *eventWriter) write(event watchEvent) error {
	if e.table && event.Type != eventBookmark && event.Type != eventError {
		var t fields
		if err := json.Unmarshal(event.Object, &t); err != nil {
			return err
		}
		if e.columns {
			t["columnDefinitions"] = json.RawMessage("null")
		}
		e.columns = e.columns || !empty(t["columnDefinitions"])
		event.Object = t.raw()
	}
	return e.encoder.Encode(event)
}

// alone returns the object of an event: of a row, a table with this row.
func (s shown) alone(include metav1.IncludeObjectPolicy) json.RawMessage {
	if s.row == nil {
		return s.encode(include)
	}
	return s.inTable(s.encode(include))
}

func (s shown) inTable(row json.RawMessage) json.RawMessage {
	t := maps.Clone(s.head)
	t[fieldRows] = slices.Concat(json.RawMessage("["), row, json.RawMessage("]"))
	return t.raw()
}

// stub is what remains of an object that is gone: its metadata suffices to find the object.
func stub(item shown) (shown, error) {
	gone := shown{object: &object{fields: fields{}}, head: item.head}
	for _, name := range []string{"kind", "apiVersion", "metadata"} {
		if raw := item.fields[name]; raw != nil {
			gone.fields[name] = raw
		}
	}
	err := gone.fields.edit("metadata", func(metadata fields) error {
		for _, name := range []string{"managedFields", "annotations", "ownerReferences"} {
			delete(metadata, name)
		}
		return nil
	})
	if item.row != nil {
		gone.row = &row{fields: fields{"cells": item.row.fields["cells"]}, of: gone.object}
	}
	return gone, err
}
