// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Content types of bodies.
const (
	JSON       = "application/json"
	MergePatch = "application/merge-patch+json"
)

// Client is a client of one API server. It may be used concurrently.
type Client struct {
	// Requests that this client has made.
	Requests *Counter

	base string
	http *http.Client
}

// New returns a client that reaches the server as the configuration says.
func New(config *rest.Config) (*Client, error) {
	c := &Client{Requests: NewCounter(), base: strings.TrimSuffix(config.Host, "/")}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, c.Requests} })
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("create client of %s: %w", config.Host, err)
	}
	c.http.Timeout = 0 // Watches last.
	return c, nil
}

// Do sends a request, and returns the body of the answer, or an error if the server refuses.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	response, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}

// Error is the answer of a server that refuses a request.
type Error struct {
	Code    int
	message string
}

func (e *Error) Error() string { return e.message }

// send sends a request, and again while the server asks for patience, as it does for a moment after it has got a CRD.
func (c *Client) send(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	for {
		response, err := c.sendOnce(ctx, method, path, contentType, body)
		if answer := (*Error)(nil); !errors.As(err, &answer) || answer.Code != http.StatusTooManyRequests {
			return response, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

func (c *Client) sendOnce(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("Accept", JSON)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		defer response.Body.Close()
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return nil, &Error{Code: response.StatusCode, message: fmt.Sprintf("%s %s: %s: %s", method, path, response.Status, answer)}
	}
	return response, nil
}

// Request is a kind of request, in the words of the servers' metric apiserver_request_total.
type Request struct {
	// Verb is GET, LIST, WATCH, POST, PUT, PATCH, APPLY, DELETE or DELETECOLLECTION.
	Verb string
	// Resource is the plural name, and Subresource what follows the object's name.
	Resource, Subresource string
	// DryRun is a write that stores nothing.
	DryRun bool
}

// Writes says whether the request is to change something.
func (r Request) Writes() bool { return r.Verb != "GET" && r.Verb != "LIST" && r.Verb != "WATCH" }

// Counts of requests.
type Counts map[Request]int

// Minus is what has been added since.
func (c Counts) Minus(earlier Counts) Counts {
	difference := Counts{}
	for request, count := range c {
		if count != earlier[request] {
			difference[request] = count - earlier[request]
		}
	}
	for request, count := range earlier {
		if _, has := c[request]; !has {
			difference[request] = -count
		}
	}
	return difference
}

// Counter counts requests.
type Counter struct {
	mu     sync.Mutex
	counts Counts // under mu
}

// NewCounter returns a Counter at zero.
func NewCounter() *Counter { return &Counter{counts: Counts{}} }

// Counts are the numbers so far.
func (c *Counter) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

func (c *Counter) count(r Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[r]++
}

// counting counts what passes.
type counting struct {
	next    http.RoundTripper
	counter *Counter
}

// RoundTrip serves http.RoundTripper.
func (t counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if request, ok := classify(r); ok && request.Verb != "WATCH" { // Servers count watches when they end.
		t.counter.count(request)
	}
	return t.next.RoundTrip(r)
}

// classify says what the server will call the request. Requests that are for no resource are not counted.
func classify(r *http.Request) (Request, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch { // Behind group and version.
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return Request{}, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	request := Request{Verb: verb(r, len(parts) > 1), Resource: parts[0], DryRun: r.URL.Query().Get("dryRun") != ""}
	if len(parts) > 2 {
		request.Subresource = parts[2]
	}
	return request, true
}

func verb(r *http.Request, named bool) string {
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		return "WATCH"
	case r.Method == http.MethodGet && !named:
		return "LIST"
	case r.Method == http.MethodDelete && !named:
		return "DELETECOLLECTION"
	case r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		return "APPLY"
	}
	return r.Method
}

// String is like "PATCH trainjobs/status".
func (r Request) String() string {
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.DryRun {
		text += " (dry run)"
	}
	return text
}
