// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/test/check"
)

// rig is a server and the sender that sends to it.
type rig struct {
	*sender
	server *httptest.Server
	// handler answers requests. broken counts calls of exchange.broken, denied counts 401s.
	handler atomic.Pointer[http.HandlerFunc]
	broken  atomic.Int32
	denied  atomic.Int32
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{}
	r.handle(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		fmt.Fprint(w, req.Header.Get("Authorization")+" "+string(body))
	})
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { (*r.handler.Load())(w, req) }))
	r.server.EnableHTTP2 = true
	r.server.StartTLS()
	t.Cleanup(r.server.Close)
	r.sender = &sender{
		exchange: newExchange(func() { r.broken.Add(1) }), silence: newSilence(r.server.URL), meter: newMeter("rig"), clock: clock.RealClock{},
		requestTimeout: 10 * time.Second, syncTimeout: 10 * time.Second, answered: func(call, int) {},
		creationTimeout: 10 * time.Second, changeTimeout: 10 * time.Second, leading: func() bool { return true },
	}
	r.unauthorized = func(l *pool) {
		if r.exchange.refused(l) {
			r.denied.Add(1)
		}
	}
	t.Cleanup(r.meter.close)
	return r
}

func (r *rig) handle(handler http.HandlerFunc) { r.handler.Store(&handler) }

// use puts credentials with a token in use and sets the gate.
func (r *rig) use(t *testing.T, token string, g gate) *pool {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	l, err := newPool(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, &dialer{timeout: 10 * time.Second, silence: r.silence}, r.exchange.lost)
	check.Must(t, err)
	t.Cleanup(l.cut)
	r.exchange.swap(l)
	r.probe(t)
	r.open(g)
	return l
}

func (r *rig) open(g gate) {
	w := r.exchange.route()
	r.exchange.replace(w, w.pool, g)
}

// probe makes a connection.
func (r *rig) probe(t *testing.T) {
	t.Helper()
	if _, err := r.do(t.Context(), probes{r.sender}, http.MethodGet, "/version", ""); err != nil {
		t.Fatal(err)
	}
}

// do sends a request and returns the answer.
func (r *rig) do(ctx context.Context, transport http.RoundTripper, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.server.URL+path, nil)
	if err != nil {
		return "", err
	}
	if body != "" {
		req.GetBody = func() (io.ReadCloser, error) { return &onceBody{Reader: strings.NewReader(body)}, nil }
		req.Body, _ = req.GetBody()
	}
	res, err := httpClient(transport).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return string(data), err
}

// onceBody cannot be read after it was closed. http.RoundTripper permits that.
type onceBody struct {
	io.Reader
	closed atomic.Bool
}

func (b *onceBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, errors.New("the body is closed")
	}
	return b.Reader.Read(p)
}

func (b *onceBody) Close() error {
	b.closed.Store(true)
	return nil
}

func TestCallersAreRefused(t *testing.T) {
	r := newRig(t)
	l := r.use(t, "one", open)
	if got, err := r.do(t.Context(), callers{r.sender}, http.MethodPost, "/api/v1/pods", "body"); err != nil || got != "Bearer one body" {
		t.Fatalf("open: %q, %v", got, err)
	}
	for _, g := range []gate{shut, cachesOnly} {
		r.open(g)
		if _, err := r.do(t.Context(), callers{r.sender}, http.MethodPost, "/api/v1/pods", "body"); !IsNotConnected(err) {
			t.Errorf("gate %d: %v, want ErrNotConnected", g, err)
		}
	}
	r.open(open)
	r.exchange.close()
	if _, err := r.do(t.Context(), callers{r.sender}, http.MethodGet, "/api/v1/pods", ""); !IsNotConnected(err) {
		t.Errorf("closed: %v, want ErrNotConnected", err)
	}
	if _, err := r.do(t.Context(), probes{r.sender}, http.MethodGet, "/version", ""); !IsNotConnected(err) {
		t.Errorf("probe when closed: %v, want ErrNotConnected", err)
	}
	if l.cut(); l.count() != 0 {
		t.Errorf("%d connections after cut", l.count())
	}
}

// TestOnlyProbesDialFirst checks that after the last connection has closed, nothing is sent before a probe, and that a
// write that had to wait arrives whole.
func TestOnlyProbesDialFirst(t *testing.T) {
	r := newRig(t)
	l := r.use(t, "one", open)
	l.cut()
	if g := r.exchange.route().gate; g != held || r.broken.Load() == 0 {
		t.Fatalf("gate %d after the last connection has gone, %d wake-ups; want it held and a probe", g, r.broken.Load())
	}
	// The request behaves as if it had passed the gate before the connection closed.
	if _, err := r.do(t.Context(), direct{r.sender}, http.MethodGet, "/api/v1/pods", ""); !errors.Is(err, errUnverified) {
		t.Errorf("dial without a probe: %v, want errUnverified", err)
	}
	r.open(open)
	answer := make(chan string, 1)
	go func() {
		got, err := r.do(context.Background(), callers{r.sender}, http.MethodPost, "/api/v1/pods", "body")
		if err != nil {
			got = err.Error()
		}
		answer <- got
	}()
	// The write must have found that it may not dial.
	gomega.NewWithT(t).Eventually(func() gate { return r.exchange.route().gate }, 10*time.Second, time.Millisecond).Should(gomega.Equal(held))
	select {
	case got := <-answer:
		t.Fatalf("the write did not wait for the probe: %s", got)
	default:
	}
	r.probe(t)
	r.open(open)
	check.Equal(t, "Bearer one body", <-answer, "write after the probe")
}

// direct sends a request without a check of the gate.
type direct struct{ *sender }

func (s direct) RoundTrip(req *http.Request) (*http.Response, error) {
	return s.send(s.exchange.route().pool, req, callOf(req, ""), s.requestTimeout)
}

// TestWatchResumes checks that a watch that ends because of an outage or bad credentials is only slow to a reflector.
func TestWatchResumes(t *testing.T) {
	cases := map[string]struct {
		reason string
		fail   http.HandlerFunc
		denied bool
	}{
		"Unauthorized": {
			reason: "The token was revoked; other credentials come.", denied: true,
			fail: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		},
		"Unavailable": {
			reason: "An API server that is starting answers 503 for custom resources.",
			fail:   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		},
		"Cut": {
			reason: "The connection breaks.",
			fail:   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.use(t, "one", open)
			good, failed := *r.handler.Load(), make(chan struct{}, 10)
			r.handle(func(w http.ResponseWriter, req *http.Request) {
				failed <- struct{}{}
				tc.fail(w, req)
			})
			answer := make(chan string, 1)
			go func() {
				got, err := r.do(context.Background(), reflectors{r.sender}, http.MethodGet, "/api/v1/pods?watch=true", "")
				if err != nil {
					got = err.Error()
				}
				answer <- got
			}()
			<-failed
			if tc.denied {
				gomega.NewWithT(t).Eventually(r.denied.Load, 10*time.Second, time.Millisecond).Should(gomega.BeNumerically(">", 0))
			}
			r.handle(good)
			r.use(t, "two", cachesOnly)
			check.Equal(t, "Bearer two ", <-answer,
				"%s: the watch: want it to go on with the new credentials", tc.reason)
		})
	}
}

// TestListsFail checks that a failed list returns to the reflector, and that a list waits while the gate is shut.
func TestListsFail(t *testing.T) {
	r := newRig(t)
	r.use(t, "one", shut)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := r.do(ctx, reflectors{r.sender}, http.MethodGet, "/api/v1/pods", "")
		answer <- err
	}()
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("list at a shut gate: %v, want it to wait for its context", err)
	}
	r.open(cachesOnly)
	r.handle(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	if _, err := r.do(t.Context(), reflectors{r.sender}, http.MethodGet, "/api/v1/pods", ""); err != nil {
		t.Errorf("list with 403: %v, want the answer", err)
	}
}

// TestStaleUnauthorized checks that a 401 to old credentials changes nothing.
func TestStaleUnauthorized(t *testing.T) {
	r := newRig(t)
	old := r.use(t, "one", open)
	r.use(t, "two", open)
	if r.exchange.refused(old) || r.exchange.route().gate != open {
		t.Error("a 401 to the credentials before shut the gate")
	}
}

// TestNoRedirect checks that a redirect does not send the token to another server.
func TestNoRedirect(t *testing.T) {
	r := newRig(t)
	stolen := make(chan string, 1)
	thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		stolen <- req.Header.Get("Authorization")
	}))
	defer thief.Close()
	r.use(t, "one", open)
	r.handle(func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, thief.URL, http.StatusFound) })
	if _, err := r.do(t.Context(), callers{r.sender}, http.MethodGet, "/api/v1/pods", ""); err == nil {
		t.Error("a redirect was followed")
	}
	select {
	case token := <-stolen:
		t.Errorf("another server got %q", token)
	default:
	}
}

// TestTimeout checks that every request except a watch has a timeout.
func TestTimeout(t *testing.T) {
	r := newRig(t)
	r.use(t, "one", open)
	r.requestTimeout = 50 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	r.handle(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Has("watch") {
			return
		}
		<-release
	})
	if _, err := r.do(t.Context(), callers{r.sender}, http.MethodGet, "/api/v1/pods", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("request to a server that does not answer: %v, want a timeout", err)
	}
	r.requestTimeout = time.Nanosecond
	if _, err := r.do(t.Context(), callers{r.sender}, http.MethodGet, "/api/v1/pods?watch=true", ""); err != nil {
		t.Errorf("watch: %v, want no timeout", err)
	}
}
