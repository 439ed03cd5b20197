// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/remote/bounded"
)

// sender does what all requests to a worker need: it counts them, gives them a timeout and examines the answers.
type sender struct {
	exchange *exchange
	silence  *silence
	meter    *meter
	clock    clock.Clock
	// prefix is the path of the server's address.
	prefix string
	// requestTimeout bounds probes and the reads of callers. syncTimeout bounds lists of the caches. creationTimeout and
	// changeTimeout bound the writes of callers.
	requestTimeout, syncTimeout, creationTimeout, changeTimeout time.Duration
	// leading says whether callers may write.
	leading func() bool
	// unauthorized is called after each 401 to a request of a pool.
	unauthorized func(*pool)
	// answered is called after each answer to the caches. excessive is called when one of their lists has no end, or when
	// one of their answers is too large.
	answered  func(call, int)
	excessive func(call, error)
	// called counts the pages of the callers' lists. cached counts the pages of the caches' lists.
	called, cached pages
}

// send sends a request through a pool. A watch has no timeout: HTTP/2 pings end it if the worker disappears.
func (s *sender) send(l *pool, req *http.Request, c call, timeout time.Duration) (*http.Response, error) {
	cancel := context.CancelFunc(func() {})
	if !c.watch {
		var ctx context.Context
		ctx, cancel = context.WithTimeout(req.Context(), timeout)
		req = req.WithContext(ctx)
	}
	res, err := l.transport.RoundTrip(req)
	if err != nil {
		cancel()
		if !errors.Is(err, errUnverified) {
			s.meter.request(c.metricVerb(), 0)
		}
		return nil, err
	}
	s.meter.request(c.metricVerb(), res.StatusCode)
	if res.StatusCode == http.StatusUnauthorized {
		s.unauthorized(l)
	}
	bounded.Answer(res, maxAnswer(req, c), c.watch)
	res.Body = &body{ReadCloser: res.Body, done: cancel}
	return res, nil
}

// maxAnswer is how many bytes the answer to a request may have, or each of its events.
func maxAnswer(req *http.Request, c call) int64 {
	probe := req.Context().Value(probing{}) != nil
	switch {
	case c.verb == "list":
		return bounded.MaxPage
	case probe && !strings.Contains(req.URL.Path, openAPI):
		return bounded.MaxSmall
	case c.resource == "":
		return bounded.MaxDocument
	}
	return bounded.MaxObject
}

// body ends its request's timeout when it is closed.
type body struct {
	io.ReadCloser
	done context.CancelFunc
	// tooLarge is called when the answer is too large. nil: nobody is told.
	tooLarge func(error)
}

// Read reads the answer.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if excess := (*bounded.TooLargeError)(nil); b.tooLarge != nil && errors.As(err, &excess) {
		b.tooLarge(err)
	}
	return n, err
}

// Close closes the body.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // Nobody reads it any more.
	}
}

// callers is the transport of clients. It refuses requests at once if the worker is not Connected.
type callers struct{ *sender }

// RoundTrip sends a request, or returns ErrNotConnected. While a probe verifies the worker, after a lost connection or
// with new credentials, RoundTrip waits for at most requestTimeout.
func (s callers) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req, s.prefix)
	req, err := s.called.admit(req, c, s.clock)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	var timeout clock.Timer
	for {
		w := s.exchange.route()
		switch w.gate {
		case open:
			res, err := s.ask(w.pool, req, c)
			if !errors.Is(err, errUnverified) {
				return onExcess(res, func(error) { s.called.shrink(req) }), err
			}
			again, ok := rewind(req)
			if !ok {
				return nil, err
			}
			req = again
		case held:
			if timeout == nil {
				timeout = s.clock.NewTimer(s.requestTimeout)
				defer timeout.Stop()
			}
			select {
			case <-w.replaced:
			case <-timeout.C():
				closeBody(req)
				return nil, ErrNotConnected
			case <-req.Context().Done():
				closeBody(req)
				return nil, req.Context().Err()
			}
		case shut, cachesOnly:
			closeBody(req)
			return nil, ErrNotConnected
		}
	}
}

// reflectors is the transport of the caches. To the caches an outage is a pause: lists and watches wait until the
// worker is verified. If a watch ends because of an outage or bad credentials, RoundTrip repeats it. Otherwise the
// reflectors would list everything again, because they retry a watch only after a refused connection.
type reflectors struct{ *sender }

// RoundTrip sends a request as soon as that is possible. It waits until the request's context ends.
func (s reflectors) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req, s.prefix)
	if c.verb == "list" {
		req = paged(req)
	}
	req, err := s.cached.admit(req, c, s.clock)
	if err != nil {
		s.excessive(c, err)
		return nil, err
	}
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 5, Cap: 10 * time.Second}
	for {
		w := s.exchange.route()
		if w.gate < cachesOnly {
			select {
			case <-w.replaced:
				continue
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		}
		if c.verb == "list" && pageSize(req.URL.Query()) == 0 {
			return expired(req), nil
		}
		res, err := s.send(w.pool, req, c, s.syncTimeout)
		if errors.Is(err, errUnverified) {
			continue
		}
		code := 0
		if err == nil {
			code = res.StatusCode
		}
		if req.Context().Err() == nil {
			s.answered(c, code)
		}
		if !c.watch || req.Context().Err() != nil || !interrupted(code) {
			return onExcess(res, func(err error) {
				if c.verb != "list" || !s.cached.shrink(req) {
					s.excessive(c, err)
				}
			}), err
		}
		if res != nil {
			_ = res.Body.Close() // The reflector gets a later answer.
		}
		if err := s.pause(req.Context(), w, backoff.Step()); err != nil {
			return nil, err
		}
	}
}

// interrupted says whether a watch with this answer can continue later where it stopped. Code 0 means no answer.
func interrupted(code int) bool {
	return code == 0 || code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// onExcess has a function called when an answer is too large.
func onExcess(res *http.Response, tooLarge func(error)) *http.Response {
	if res != nil {
		if b, ok := res.Body.(*body); ok {
			b.tooLarge = tooLarge
		}
	}
	return res
}

// pause waits for a while or until another route replaces this one.
func (s reflectors) pause(ctx context.Context, w *route, d time.Duration) error {
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-w.replaced:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// probes is the transport of the probe and of the questions before the caches start. No gate stops it.
type probes struct{ *sender }

// RoundTrip sends a request through the pool in use.
func (s probes) RoundTrip(req *http.Request) (*http.Response, error) {
	w := s.exchange.route()
	if w.pool == nil {
		closeBody(req)
		return nil, ErrNotConnected
	}
	req = req.WithContext(context.WithValue(req.Context(), probing{}, true))
	res, err := s.send(w.pool, req, callOf(req, s.prefix), s.requestTimeout)
	if err == nil {
		s.silence.hear() // Even an error of a proxy shows that something answers.
	}
	return res, err
}

// httpClient returns a client that follows no redirects: a redirect would send the token to another server.
func httpClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return bounded.ErrRedirect },
	}
}
