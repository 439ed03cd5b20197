// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounded

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Limits are the limits of the clients of one config.
type Limits struct {
	// Timeout is how long a request may take, with its answer. Watches and logs have no timeout. Required.
	Timeout time.Duration
	// Size is how many bytes an answer may have. Events of watches may have MaxObject bytes, and logs have no limit.
	// 0: MaxPage.
	Size int64
}

// Kubernetes returns a client of a worker for built-in kinds.
func Kubernetes(config *rest.Config, limits Limits) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(Config(config, limits)) //nolint:forbidigo // This is the place.
}

// Dynamic returns a client of a worker for all kinds.
func Dynamic(config *rest.Config, limits Limits) (dynamic.Interface, error) {
	return dynamic.NewForConfig(Config(config, limits)) //nolint:forbidigo // This is the place.
}

// Config returns a config for clients of a worker. Their answers are bounded, and they follow no redirects.
func Config(config *rest.Config, limits Limits) *rest.Config {
	limits.Size = cmp.Or(limits.Size, int64(MaxPage))
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, limits: limits} })
	return config
}

// transport is the transport of the clients of one config.
type transport struct {
	next   http.RoundTripper
	limits Limits
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	logs := strings.HasSuffix(req.URL.Path, "/log")
	cancel := context.CancelFunc(func() {})
	if !watch && !logs {
		var ctx context.Context
		ctx, cancel = context.WithTimeout(req.Context(), t.limits.Timeout)
		req = req.WithContext(ctx)
	}
	res, err := t.next.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if redirects(res.StatusCode) {
		cancel()
		_ = res.Body.Close() // Nobody reads it.
		return nil, ErrRedirect
	}
	switch {
	case watch:
		Answer(res, MaxObject, true)
	case !logs || res.StatusCode != http.StatusOK:
		Answer(res, t.limits.Size, false)
	}
	res.Body = &timed{ReadCloser: res.Body, cancel: cancel}
	return res, nil
}

// redirects says whether an HTTP client would send the request again, to an address that the answer names.
func redirects(code int) bool {
	switch code {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		return true
	}
	return false
}

// timed ends its request's timeout when it is closed.
type timed struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes the body.
func (b *timed) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
