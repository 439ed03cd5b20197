// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// interceptor is an API server in front of the API server.
type interceptor struct {
	address string
	server  *http.Server
	next    *httputil.ReverseProxy
	handler atomic.Pointer[Handler]
}

func newInterceptor(upstream string, certificate tls.Certificate) (*interceptor, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0)
	i := &interceptor{address: listener.Addr().String()}
	target := &url.URL{Scheme: "https", Host: upstream}
	i.next = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // Events of watches are passed on at once.
		ErrorLog:      quiet,
		Transport: &http.Transport{
			// The client does not check who answers: this is the way to a process of the test.
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: true,
		},
	}
	i.server = &http.Server{
		Handler:           i,
		ErrorLog:          quiet,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = i.server.ServeTLS(listener, "", "") }() // Until close.
	return i, nil
}

// ServeHTTP serves http.Handler.
func (i *interceptor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler := i.handler.Load(); handler != nil {
		(*handler)(w, r, i.next)
		return
	}
	i.next.ServeHTTP(w, r)
}

func (i *interceptor) handle(handler Handler) {
	if handler == nil {
		i.handler.Store(nil)
		return
	}
	i.handler.Store(&handler)
}

func (i *interceptor) close() { _ = i.server.Close() }

// Answer answers every request with a code. If retryAfter is not 0, it is the Retry-After in seconds.
func Answer(code, retryAfter int) Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		if retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: int32(code), Message: "a fault of the test",
		})
	}
}

// Watches passes watches to a handler, and all other requests on.
func Watches(handler Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") == "" {
			next.ServeHTTP(w, r)
			return
		}
		handler(w, r, next)
	}
}

// Forget ends each watch after some time. It answers every second watch that continues from a version with 410 Gone:
// the events since that version are no longer known.
func Forget(after time.Duration) Handler {
	var count atomic.Int64
	end, gone := EndAfter(after), Answer(http.StatusGone, 0)
	return Watches(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		version := r.URL.Query().Get("resourceVersion")
		if version != "" && version != "0" && r.URL.Query().Get("sendInitialEvents") == "" && count.Add(1)%2 == 1 {
			gone(w, r, next)
			return
		}
		end(w, r, next)
	})
}

// EndAfter ends each request in an orderly way after some time.
func EndAfter(d time.Duration) Handler {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		defer func() { // How the reverse proxy says that an answer has been cut short. The client is not to see that.
			if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // It is a value of a panic.
				panic(v)
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	}
}
