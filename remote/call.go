// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"net/http"
	"strings"
)

// call is what a request asks of an API server.
type call struct {
	// verb is the RBAC verb, or "get" for paths that are not a resource.
	verb string
	// resource is the resource, with its subresource after a slash. It is empty for paths that are not a resource.
	resource string
	// watch says that the answer is a stream.
	watch bool
	// initial says that a watch begins with a streamed list.
	initial bool
}

const verbCreate = "create"

func (c call) writes() bool {
	switch c.verb {
	case verbCreate, "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// metricVerb gives watches that begin with a list a name of their own.
func (c call) metricVerb() string {
	if c.initial {
		return "watchlist"
	}
	return c.verb
}

// callOf reads the method and the path. prefix is the path of the server's address, for API servers behind a proxy.
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
