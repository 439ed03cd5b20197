// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"net/http"
	"strings"
)

// call is what a request to an API server is about.
type call struct {
	// verb as in RBAC, or "get" for paths that are no resource.
	verb string
	// resource, with its subresource after a slash. Empty for paths that are no resource.
	resource string
	// watch says that the answer is a stream.
	watch bool
	// initial says that a watch begins with a list, streamed.
	initial bool
}

const verbCreate = "create"

// writes says whether the request may change something.
func (c call) writes() bool {
	switch c.verb {
	case verbCreate, "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// metricVerb tells watches that list from those that go on.
func (c call) metricVerb() string {
	if c.initial {
		return "watchlist"
	}
	return c.verb
}

// callOf reads method and path. prefix is the path of the server's address, for API servers behind a proxy.
func callOf(req *http.Request, prefix string) call {
	query := req.URL.Query()
	watch := req.Method == http.MethodGet && (query.Get("watch") == "true" || query.Get("watch") == "1")
	path := strings.Trim(strings.TrimPrefix(req.URL.Path, prefix), "/")
	parts := strings.Split(path, "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return call{verb: "get"}
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	c := call{resource: parts[0], watch: watch, initial: watch && query.Get("sendInitialEvents") == "true"}
	if len(parts) > 2 {
		c.resource += "/" + strings.Join(parts[2:], "/")
	}
	named := len(parts) > 1
	switch req.Method {
	case http.MethodPost:
		c.verb = verbCreate
	case http.MethodPut:
		c.verb = "update"
	case http.MethodPatch:
		c.verb = "patch"
	case http.MethodDelete:
		c.verb = "delete"
		if !named {
			c.verb = "deletecollection"
		}
	default:
		c.verb = readingVerb(watch, named)
	}
	return c
}

func readingVerb(watch, named bool) string {
	switch {
	case watch:
		return "watch"
	case named:
		return "get"
	}
	return "list"
}
