// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func (h *handler) get(w http.ResponseWriter, r *http.Request, of target) {
	o, err := h.store.get(of.kind, of.key)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, shown(r, o))
}

// list answers with everything at once, or with pages. Unlike an API server, later pages have what has changed since
// the first page.
func (h *handler) list(w http.ResponseWriter, r *http.Request, of target) {
	query := r.URL.Query()
	selection, err := newSelection(of.kind, of.key.Namespace, query)
	if err != nil {
		refuse(w, err)
		return
	}
	objects, version := h.store.list(of.kind)
	if err := notAhead(query.Get("resourceVersion"), version); err != nil {
		refuse(w, err)
		return
	}
	objects = slices.DeleteFunc(objects, func(o *object) bool { return !selection.matches(o) })
	objects, next, err := page(objects, query.Get("limit"), query.Get("continue"))
	if err != nil {
		refuse(w, err)
		return
	}
	metadata := map[string]any{"resourceVersion": strconv.FormatUint(version, 10)}
	if next != "" {
		metadata["continue"] = next
	}
	items := make([]any, len(objects))
	for i, o := range objects {
		items[i] = shown(r, o)
	}
	apiVersion, kind := of.kind.GroupVersion().String(), of.kind.Kind+"List"
	if wantsPartial(r) {
		apiVersion, kind = metav1.SchemeGroupVersion.String(), "PartialObjectMetadataList"
	}
	answer(w, http.StatusOK, map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "items": items})
}

// notAhead refuses a version that does not exist yet. An API server first waits a little.
func notAhead(wanted string, version uint64) error {
	if wanted == "" {
		return nil
	}
	number, err := strconv.ParseUint(wanted, 10, 64)
	switch {
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: Invalid value: %q", wanted))
	case number > version:
		return apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", number, version), 1)
	}
	return nil
}

// page cuts objects, which are sorted. A continue token is the key of the last object before it.
func page(objects []*object, limit, token string) (cut []*object, next string, err error) {
	if token != "" {
		after, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, "", apierrors.NewBadRequest("continue key is not valid")
		}
		at := slices.IndexFunc(objects, func(o *object) bool { return o.key.String() > string(after) })
		if at < 0 {
			at = len(objects)
		}
		objects = objects[at:]
	}
	if limit == "" {
		return objects, "", nil
	}
	size, err := strconv.Atoi(limit)
	if err != nil || size < 0 {
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("limit: Invalid value: %q", limit))
	}
	if size == 0 || size >= len(objects) {
		return objects, "", nil
	}
	return objects[:size], base64.RawURLEncoding.EncodeToString([]byte(objects[size-1].key.String())), nil
}

// selection is what a list or watch is about.
type selection struct {
	kind      *kind
	namespace string // Empty: all.
	labels    labels.Selector
	fields    fields.Selector
}

// podFields are fields by which pods can be selected besides name and namespace.
var podFields = map[string][]string{
	"spec.nodeName": {"spec", "nodeName"}, "spec.schedulerName": {"spec", "schedulerName"}, "status.phase": {"status", "phase"},
}

func newSelection(k *kind, namespace string, query url.Values) (selection, error) {
	s := selection{kind: k, namespace: namespace}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	for _, requirement := range s.fields.Requirements() {
		switch _, ofPods := podFields[requirement.Field]; {
		case requirement.Field == "metadata.name", requirement.Field == "metadata.namespace" && k.namespaced, ofPods && k.Kind == "Pod":
		default:
			return s, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", requirement.Field))
		}
	}
	return s, nil
}

func (s selection) matches(o *object) bool {
	switch {
	case o == nil, s.namespace != "" && o.key.Namespace != s.namespace, !s.labels.Matches(labels.Set(o.meta.GetLabels())):
		return false
	case s.fields.Empty():
		return true
	}
	values := fields.Set{"metadata.name": o.key.Name, "metadata.namespace": o.key.Namespace}
	if o.kind.Kind == "Pod" {
		for field, path := range podFields {
			values[field], _, _ = unstructured.NestedString(o.content(), path...)
		}
	}
	return s.fields.Matches(values)
}

// gate stops the bytes of all connections of a worker while it is shut, below TLS and HTTP: so neither pings nor
// handshakes are answered, as if the process were stopped. The kernel goes on accepting connections.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // Closed while bytes may pass; under mu.
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) passage() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}

// gatedListener makes connections that go through a gate.
type gatedListener struct {
	net.Listener
	gate *gate
}

// Accept accepts a connection, gate or not.
func (l gatedListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: connection, gate: l.gate, closed: make(chan struct{})}, nil
}

type gatedConn struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}
}

// Read holds back what it has read while the gate is shut.
func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.pass() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write writes when the gate is open.
func (c *gatedConn) Write(p []byte) (int, error) {
	if !c.pass() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// pass returns false if the connection is closed before the gate opens.
func (c *gatedConn) pass() bool {
	select {
	case <-c.gate.passage():
		return true
	case <-c.closed:
		return false
	}
}

// Close closes the connection, gate or not.
func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
