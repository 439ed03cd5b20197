// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"

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
		raw, err := json.Marshal(t)
		if err != nil {
			return err
		}
		event.Object = raw
	}
	return e.encoder.Encode(event)
}

// alone returns the object of an event.
func (s shown) alone(include metav1.IncludeObjectPolicy) (json.RawMessage, error) {
	raw, err := s.encode(include)
	if s.row == nil || err != nil {
		return raw, err
	}
	return s.inTable(raw)
}

func (s shown) inTable(row json.RawMessage) (json.RawMessage, error) {
	t := fields{}
	for name, value := range s.head {
		t[name] = value
	}
	if err := t.set(fieldRows, []json.RawMessage{row}); err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// stub returns what the client gets when an object is gone: its metadata suffices to find the object.
func (m *merged) stub(item shown) (json.RawMessage, error) {
	o := fields{}
	for _, name := range []string{"kind", "apiVersion", "metadata"} {
		if raw := item.fields[name]; raw != nil {
			o[name] = raw
		}
	}
	err := o.edit("metadata", func(metadata fields) error {
		for _, name := range []string{"managedFields", "annotations", "ownerReferences"} {
			delete(metadata, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(o)
	if item.row == nil || err != nil {
		return raw, err
	}
	if m.q.include == metav1.IncludeNone {
		raw = json.RawMessage("null")
	}
	row := fields{"cells": item.row.fields["cells"], "object": raw}
	if raw, err = json.Marshal(row); err != nil {
		return nil, err
	}
	return item.inTable(raw)
}
