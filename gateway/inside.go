// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
)

// errPanicked ends an answer whose handler has panicked.
var errPanicked = errors.New("the gateway could not finish its answer")

// inside sends the requests of a caller to the handler of this process, as if they had come by a connection.
type inside struct {
	handler http.Handler
	caller  *caller
	log     logr.Logger
}

// RoundTrip implements http.RoundTripper. The answer comes as the handler writes it.
func (i *inside) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	i.caller.authorize(r.Header)
	r.RequestURI, r.Host = r.URL.RequestURI(), r.URL.Host
	body, to := io.Pipe()
	w := &insideWriter{header: http.Header{}, body: to, begun: make(chan struct{})}
	go func() {
		defer func() {
			// A handler of net/http may panic to end an answer. Here it would end the process.
			if reason := recover(); reason != nil {
				if err, ok := reason.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					i.log.Error(fmt.Errorf("%v", reason), "A request of the board has panicked")
				}
				w.WriteHeader(http.StatusInternalServerError)
				_ = to.CloseWithError(errPanicked)
			}
		}()
		i.handler.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = to.Close()
	}()
	select {
	case <-w.begun:
		return &http.Response{
			StatusCode: w.code, Status: http.StatusText(w.code), Header: w.sent, Body: body, Request: r, ContentLength: -1, Proto: r.Proto, ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	case <-r.Context().Done():
		_ = body.CloseWithError(r.Context().Err()) // Writes of the handler fail then.
		return nil, r.Context().Err()
	}
}

// insideWriter is the http.ResponseWriter of such a request. The handler alone uses it until begun is closed, and what is
// read then does not change any more.
type insideWriter struct {
	header, sent http.Header
	code         int
	body         *io.PipeWriter
	once         sync.Once
	begun        chan struct{}
}

// Header implements http.ResponseWriter.
func (w *insideWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *insideWriter) WriteHeader(code int) {
	if code < http.StatusOK {
		return // It is not the answer yet.
	}
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		close(w.begun)
	})
}

// Write implements http.ResponseWriter.
func (w *insideWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher. Nothing is kept back.
func (w *insideWriter) Flush() { w.WriteHeader(http.StatusOK) }
