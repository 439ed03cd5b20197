// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// policy is what a browser may do with the board: load its own files, and ask its own server. Nothing in the page can run
// text as a script, be it by innerHTML (Trusted Types), and no other page can show the board in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'none'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// protect sets the headers that each answer has.
func protect(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// sameOrigin is false for requests that a browser sends for another page. Browsers say so, each in one of two headers.
// Of pages on another port of the same host, Sec-Fetch-Site is same-site, and cookies come with their requests: so only
// same-origin will do. A user who types the address, or opens it from a program, sends none.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
		return true
	case "none":
		return r.Method == http.MethodGet
	case "":
		return isOwnOrigin(r)
	}
	return false
}

// isVisit is true for a browser that comes from another page by a link, or from the login of a proxy. It gets a page that
// has nothing of the hub yet, in a window of its own.
func isVisit(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" &&
		slices.Contains(views, strings.TrimPrefix(r.URL.Path, "/"))
}

// isOwnOrigin is true without the header Origin: then no page of a browser without Sec-Fetch-Site has sent more than a
// GET, whose answer it cannot read.
func isOwnOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	origin, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && origin.Host == r.Host
}

// problem is why there is no answer, and what the user can do.
type problem struct {
	Error string `json:"error"`
	// Lacks are the rights that the caller lacks, such as "workerclusters.trainyard.dev: list, watch".
	Lacks []string `json:"lacks,omitempty"`
	Todo  string   `json:"todo,omitempty"`
}

func refuse(w http.ResponseWriter, code int, p *problem) { answer(w, code, p) }

// answer writes a value as JSON.
func answer(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // The client may have gone.
}

// fail answers with an error of the hub.
func fail(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	code := http.StatusBadGateway
	if errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 600 {
		code = int(status.Status().Code)
	}
	p := &problem{Error: err.Error()}
	if code == http.StatusForbidden {
		p.Todo = "ask an admin of the hub for that right"
	}
	refuse(w, code, p)
}
