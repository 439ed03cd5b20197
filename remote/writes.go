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

// creationDeadline is how long an API server may work on a creation. It is the default of an API server's
// --request-timeout, and shortens longer ones. So after this time an abandoned creation cannot take effect any more.
const creationDeadline = time.Minute

func (s callers) ask(l *pool, req *http.Request, c call) (*http.Response, error) {
	if !c.writes() {
		return s.send(l, req, c, s.requestTimeout)
	}
	timeout := s.changeTimeout
	switch {
	// A lease must be renewed quickly, and admission webhooks do not concern it.
	case c.resource == resourceExecutionLeases:
		timeout = s.requestTimeout
	case c.verb == verbCreate:
		timeout = s.creationTimeout
		req = withDeadline(req)
	}
	return sendWhileLeading(req, s.leading, func(req *http.Request) (*http.Response, error) { return s.send(l, req, c, timeout) })
}

// OnlyLeaderWrites wraps the transport of the hub's clients. It sends writes only while leading returns true. Otherwise
// they fail with ErrNotLeading. It always sends reads.
//
// A conditional write does not protect enough. A process that was paused has an old view of a worker. Since then the
// next leader may have created a copy there that is not on record on the hub yet.
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

// sendWhileLeading sends a write only while this process certainly leads. It is called after the rate limiter and after
// a held gate: a process that was paused or had to wait acts on old caches.
func sendWhileLeading(
	req *http.Request, leading func() bool, send func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	if !leading() {
		closeBody(req)
		return nil, ErrNotLeading
	}
	ctx, cancel := context.WithCancel(req.Context())
	// Dialling takes time too. An HTTP/2 request whose context has ended before the connection is ready is not sent.
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

// withDeadline tells the API server how long it may work on the request.
func withDeadline(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	query := req.URL.Query()
	query.Set("timeout", creationDeadline.String())
	req.URL.RawQuery = query.Encode()
	return req
}
