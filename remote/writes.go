// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"time"
)

// creationDeadline is how long an API server is asked to work on a creation at most. It is the default of its
// --request-timeout; one with a longer --request-timeout is held to it too. So who gives a creation up knows when
// nothing can come of it any more.
const creationDeadline = time.Minute

// ask sends a caller's request. A write is sent only while this process certainly leads. That is asked here, behind
// the limiter and behind a gate that was held: a process that was paused, or had to wait, acts on what its caches
// showed before.
func (s callers) ask(l *line, req *http.Request, c call) (*http.Response, error) {
	if !c.writes() {
		return s.send(l, req, c, s.requestTimeout)
	}
	if !s.leading() {
		closeBody(req)
		return nil, ErrNotLeading
	}
	ctx, cancel := context.WithCancel(req.Context())
	// To make a connection takes time too. An HTTP/2 request whose context has ended by then is not sent.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if !s.leading() {
			cancel()
		}
	}})
	timeout := s.changeTimeout
	switch {
	case c.resource == resourceExecutionLeases: // Its time counts, and admission has no business with it.
		timeout = s.requestTimeout
	case c.verb == verbCreate:
		timeout = s.creationTimeout
		req = withDeadline(req)
	}
	res, err := s.send(l, req.WithContext(ctx), c, timeout)
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
