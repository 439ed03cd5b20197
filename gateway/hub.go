// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// bodyIdleFor is how long a connection for requests with a body is kept. It is less than the API server's 90 seconds, so
// that no request is sent while its connection ends.
const bodyIdleFor = 30 * time.Second

// hub is the API server of the hub for callers, and the hub's caches for this process.
type hub struct {
	cached client.Reader
	base   *url.URL
	// requests, bodies and upgrades reach the API server without credentials: every request has its caller's. Requests with
	// a body do not share a connection: the API server closes one of HTTP/2 after a bad token, whosever requests are under
	// way, and a body that comes as a stream cannot be sent again on another.
	requests, bodies, upgrades *http.Transport
	errorLog                   *log.Logger
}

// newHub returns the hub at the address of a config, whose credentials are not used.
func newHub(config *rest.Config, cached client.Reader, logger logr.Logger) (*hub, error) {
	base, err := url.Parse(config.Host)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the hub's address %q is not a URL", config.Host)
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("use the TLS data of the hub: %w", err)
	}
	bodies := overHTTP1(tlsConfig) // The API server has a limit of its own for writes.
	bodies.MaxIdleConnsPerHost, bodies.IdleConnTimeout = 100, bodyIdleFor
	return &hub{
		cached: cached, base: base, bodies: bodies, upgrades: forUpgrades(tlsConfig), errorLog: ErrorLog(logger),
		requests: utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: 100, DisableCompression: true}),
	}, nil
}

// serve passes a request on with the caller's token.
func (h *hub) serve(w http.ResponseWriter, r *http.Request, c *caller) { h.pass(w, r, c, nil) }

// pass passes a request on as serve does. change changes the answer, if it is not nil.
func (h *hub) pass(w http.ResponseWriter, r *http.Request, c *caller, change func(*http.Response) error) {
	by := h.requests
	switch {
	case r.Header.Get("Upgrade") != "":
		by = h.upgrades
	case r.ContentLength != 0:
		by = h.bodies
	}
	proxy := &httputil.ReverseProxy{
		Transport: by, FlushInterval: -1, ErrorLog: h.errorLog, ModifyResponse: change,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(h.base)
			for name := range p.Out.Header {
				if strings.HasPrefix(name, "X-Remote-") {
					p.Out.Header.Del(name)
				}
			}
			p.SetXForwarded()
			c.authorize(p.Out.Header)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			fail(w, unavailable("the hub does not answer: %v", err))
		},
	}
	proxy.ServeHTTP(w, r)
}

// as is the API server for a caller.
func (h *hub) as(c *caller) *server {
	return &server{base: h.base, transport: asCaller{caller: c, next: h.requests}, trusted: true}
}

// asked asks the hub for a pod of this name as the caller, and returns the code of the answer: 200 if the hub has the pod
// itself and shows it, 404 if it certainly has none, and 0 if it does not answer.
func (h *hub) asked(ctx context.Context, c *caller, info *apirequest.RequestInfo) int {
	res, err := h.as(c).get(ctx, podPath(info, ""), nil, metadataAccept, false)
	if err != nil {
		return 0
	}
	_ = res.Body.Close() // Nobody reads it.
	return res.StatusCode
}

// dispatch reads a Dispatch, see dispatchIn.
func (h *hub) dispatch(ctx context.Context, key types.NamespacedName) *v1alpha1.Dispatch {
	return dispatchIn(ctx, h.cached, key)
}

// dispatchIn reads a Dispatch from a cache, nil if there is none. It belongs to the cache: do not change it.
func dispatchIn(ctx context.Context, cached client.Reader, key types.NamespacedName) *v1alpha1.Dispatch {
	d, err := records.Dispatch(ctx, cached, key, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil
	}
	return d
}
