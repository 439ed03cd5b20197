// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// handler answers the requests to one worker.
type handler struct {
	store *store
	token string
}

// target is what a request is about.
type target struct {
	kind *kind
	// key has no name for lists and creations.
	key         types.NamespacedName
	subresource string
}

// ServeHTTP answers a request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+h.token {
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	of, found := parse(r.URL.Path)
	switch {
	case !found && r.Method == http.MethodGet && discover(w, r):
	case !found || of.subresource != "" && (of.subresource != "status" || !of.kind.status):
		http.Error(w, "404 page not found", http.StatusNotFound)
	case of.key.Name == "":
		h.collection(w, r, of)
	default:
		h.single(w, r, of)
	}
}

// parse finds out what a path is about.
func parse(path string) (target, bool) {
	for _, k := range kinds {
		rest, ok := strings.CutPrefix(path, k.path()+"/")
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		of := target{kind: k}
		if k.namespaced && len(parts) > 2 && parts[0] == "namespaces" {
			of.key.Namespace, parts = parts[1], parts[2:]
		}
		if k == namespaces && len(parts) > 2 && parts[2] != "status" {
			continue // It is about something in the namespace.
		}
		if parts[0] != k.plural || len(parts) > 3 || k.namespaced && of.key.Namespace == "" && len(parts) > 1 {
			continue
		}
		if len(parts) > 1 {
			of.key.Name = parts[1]
		}
		if len(parts) > 2 {
			of.subresource = parts[2]
		}
		return of, true
	}
	return target{}, false
}

func (h *handler) collection(w http.ResponseWriter, r *http.Request, of target) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && (query.Get("watch") == "1" || query.Get("watch") == "true"):
		h.watch(w, r, of)
	case r.Method == http.MethodGet:
		h.list(w, r, of)
	case r.Method == http.MethodPost && (of.key.Namespace != "" || !of.kind.namespaced):
		h.create(w, r, of)
	default:
		refuse(w, apierrors.NewMethodNotSupported(of.kind.resource(), strings.ToLower(r.Method)))
	}
}

func (h *handler) single(w http.ResponseWriter, r *http.Request, of target) {
	switch r.Method {
	case http.MethodGet:
		h.get(w, r, of)
	case http.MethodPut:
		h.replace(w, r, of)
	case http.MethodPatch:
		h.patch(w, r, of)
	case http.MethodDelete:
		h.delete(w, r, of)
	default:
		refuse(w, apierrors.NewMethodNotSupported(of.kind.resource(), strings.ToLower(r.Method)))
	}
}
