// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Link is the way to one API server. Its methods may be called concurrently. A fault stays until Heal, or until the next one that it
// cannot go with.
type Link struct {
	name  string
	front *front
	proxy *toxiproxy.Proxy
	http  *interceptor

	mu          sync.Mutex
	intercepted bool    // under mu: new connections go to the interceptor
	always      Handler // under mu: of requests while no fault intercepts them
}

// Some toxics log on their own, whatever logger their proxy has.
func init() { zerolog.SetGlobalLevel(zerolog.Disabled) }

// New makes a link to an API server at host:port. The certificate and key of the server, with which the link answers requests that it
// intercepts, are apiserver.crt and apiserver.key in pki.
func New(name, server, pki string) (*Link, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", name, err)
	}
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &Link{name: name, proxy: toxiproxy.NewProxy(api, name, "127.0.0.1:0", server)}
	if err := l.proxy.Start(); err != nil {
		return nil, fmt.Errorf("link to %s: %w", name, err)
	}
	if l.http, err = newInterceptor(l.proxy.Listen, certificate); err != nil {
		return nil, fmt.Errorf("link to %s: %w", name, err)
	}
	if l.front, err = newFront(l.target); err != nil {
		return nil, fmt.Errorf("link to %s: %w", name, err)
	}
	return l, nil
}

// URL is where clients reach the API server through the link.
func (l *Link) URL() string { return "https://" + l.front.address.String() }

func (l *Link) target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.intercepted {
		return l.http.address
	}
	return l.proxy.Listen
}

// Latency delays what comes back, by up to the jitter more or less.
func (l *Link) Latency(delay, jitter time.Duration) error {
	return l.toxic("latency", "downstream", map[string]any{"latency": delay.Milliseconds(), "jitter": jitter.Milliseconds()})
}

// Bandwidth lets so many KB per second through in each direction.
func (l *Link) Bandwidth(kilobytes int) error {
	for _, stream := range []string{"upstream", "downstream"} {
		if err := l.toxic("bandwidth", stream, map[string]any{"rate": kilobytes}); err != nil {
			return err
		}
	}
	return nil
}

// Hang accepts connections, and nothing ever comes back. Connections that exist carry nothing any more. Heal ends all of them.
func (l *Link) Hang() error {
	for _, stream := range []string{"upstream", "downstream"} {
		if err := l.toxic("timeout", stream, map[string]any{"timeout": 0}); err != nil {
			return err
		}
	}
	return nil
}

// Reset resets all connections, and every new one as soon as it carries something.
func (l *Link) Reset() error {
	if err := l.toxic("reset_peer", "upstream", map[string]any{"timeout": 0}); err != nil {
		return err
	}
	l.front.cutAll(true)
	return nil
}

// Cut resets all connections once.
func (l *Link) Cut() { l.front.cutAll(true) }

// Refuse ends all connections, and new ones are refused, as where the API server's process has gone.
func (l *Link) Refuse() { l.front.refuse() }

// Blackhole loses every packet.
func (l *Link) Blackhole() error {
	if err := l.front.shut(); err != nil {
		return fmt.Errorf("make link to %s a black hole: %w", l.name, err)
	}
	return nil
}

// Handler answers a request, or passes it on to next, which is the API server.
type Handler func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Intercept ends all connections, and gives the requests on new ones to the handler.
func (l *Link) Intercept(handler Handler) {
	l.http.handle(handler)
	l.mu.Lock()
	l.intercepted = true
	l.mu.Unlock()
	l.front.cutAll(false)
}

// Always gives all requests to the handler while no fault intercepts them. It is no fault, so Heal does not end it.
func (l *Link) Always(handler Handler) {
	l.mu.Lock()
	l.always = handler
	l.mu.Unlock()
	l.Intercept(handler)
}

// Heal ends all faults. What was on its way when the link became a black hole arrives.
func (l *Link) Heal() error {
	l.mu.Lock()
	l.intercepted = l.always != nil
	l.http.handle(l.always)
	l.mu.Unlock()
	l.proxy.Toxics.ResetToxics(context.Background())
	if err := l.front.heal(); err != nil {
		return fmt.Errorf("heal link to %s: %w", l.name, err)
	}
	return nil
}

// Close ends the link.
func (l *Link) Close() {
	l.front.refuse()
	l.http.close()
	l.proxy.Stop()
}

func (l *Link) toxic(kind, stream string, attributes map[string]any) error {
	text, err := json.Marshal(map[string]any{"type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		return err
	}
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
		return fmt.Errorf("add %s to link to %s: %w", kind, l.name, err)
	}
	return nil
}
