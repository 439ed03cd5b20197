// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"time"

	"k8s.io/client-go/transport"
)

// creationDeadline is how long an API server is asked to work on a creation at most. It is the default of its
// --request-timeout; one with a longer --request-timeout is held to it too. So who gives a creation up knows when
// nothing can come of it any more.
const creationDeadline = time.Minute

// ask sends a caller's request.
func (s callers) ask(l *pool, req *http.Request, c call) (*http.Response, error) {
	if !c.writes() {
		return s.send(l, req, c, s.requestTimeout)
	}
	timeout := s.changeTimeout
	switch {
	case c.resource == resourceExecutionLeases: // Its time counts, and admission has no business with it.
		timeout = s.requestTimeout
	case c.verb == verbCreate:
		timeout = s.creationTimeout
		req = withDeadline(req)
	}
	return sendWhileLeading(req, s.leading, func(req *http.Request) (*http.Response, error) { return s.send(l, req, c, timeout) })
}

// OnlyLeaderWrites wraps the transport of the hub's clients: a write is sent only while leading is true, and fails with ErrNotLeading
// otherwise. Reads are always sent.
//
// A conditional write is not enough. A process that was paused has seen a worker as it was before. The next leader may have created a
// copy there since, of which nothing is written on the hub yet.
func OnlyLeaderWrites(leading func() bool) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &leaderWrites{next: next, leading: leading} }
}

type leaderWrites struct {
	next    http.RoundTripper
	leading func() bool
}

// RoundTrip implements http.RoundTripper.
func (w *leaderWrites) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return w.next.RoundTrip(req)
	}
	return sendWhileLeading(req, w.leading, w.next.RoundTrip)
}

// sendWhileLeading sends a write only while this process certainly leads. It asks behind the limiter and behind a gate that was held: a
// process that was paused, or had to wait, acts on what its caches showed before.
func sendWhileLeading(
	req *http.Request, leading func() bool, send func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	if !leading() {
		closeBody(req)
		return nil, ErrNotLeading
	}
	ctx, cancel := context.WithCancel(req.Context())
	// To make a connection takes time too. An HTTP/2 request whose context has ended by then is not sent.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if !leading() {
			cancel()
		}
	}})
	res, err := send(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	res.Body = &body{ReadCloser: res.Body, done: cancel}
	return res, nil
}

// withDeadline tells the API server for how long it may work on the request.
func withDeadline(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("timeout", creationDeadline.String())
	req.URL.RawQuery = query.Encode()
	return req
}
