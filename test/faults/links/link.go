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

// Link is the way to one API server. Its methods are safe for concurrent use. A fault stays until Heal, or until
// another fault that replaces it.
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

// New makes a link to an API server at host:port. The directory pki has the server's apiserver.crt and apiserver.key,
// with which the link answers the requests that it intercepts.
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

// URL returns the address of the API server through the link.
func (l *Link) URL() string { return "https://" + l.front.address.String() }

func (l *Link) target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.intercepted {
		return l.http.address
	}
	return l.proxy.Listen
}

// Latency delays answers, by delay plus or minus the jitter.
func (l *Link) Latency(delay, jitter time.Duration) error {
	return l.toxic("latency", "downstream", map[string]any{"latency": delay.Milliseconds(), "jitter": jitter.Milliseconds()})
}

// Bandwidth limits each direction to this many KB per second.
func (l *Link) Bandwidth(kilobytes int) error {
	for _, stream := range []string{"upstream", "downstream"} {
		if err := l.toxic("bandwidth", stream, map[string]any{"rate": kilobytes}); err != nil {
			return err
		}
	}
	return nil
}

// Hang accepts connections, but nothing comes back. Existing connections carry nothing any more. Heal ends all of them.
func (l *Link) Hang() error {
	for _, stream := range []string{"upstream", "downstream"} {
		if err := l.toxic("timeout", stream, map[string]any{"timeout": 0}); err != nil {
			return err
		}
	}
	return nil
}

// Reset resets all connections, and each new connection as soon as it carries data.
func (l *Link) Reset() error {
	if err := l.toxic("reset_peer", "upstream", map[string]any{"timeout": 0}); err != nil {
		return err
	}
	l.front.cutAll(true)
	return nil
}

// Cut resets all connections once.
func (l *Link) Cut() { l.front.cutAll(true) }

// Refuse ends all connections and refuses new ones, as if the API server's process were gone.
func (l *Link) Refuse() { l.front.refuse() }

// Blackhole loses every packet.
func (l *Link) Blackhole() error {
	if err := l.front.shut(); err != nil {
		return fmt.Errorf("make link to %s a black hole: %w", l.name, err)
	}
	return nil
}

// Handler answers a request, or passes it on to next, the API server.
type Handler func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Intercept ends all connections, and passes the requests on new connections to the handler.
func (l *Link) Intercept(handler Handler) {
	l.http.handle(handler)
	l.mu.Lock()
	l.intercepted = true
	l.mu.Unlock()
	l.front.cutAll(false)
}

// Always passes all requests to the handler while no fault intercepts them. It is no fault, so Heal does not end it.
func (l *Link) Always(handler Handler) {
	l.mu.Lock()
	l.always = handler
	l.mu.Unlock()
	l.Intercept(handler)
}

// Heal ends all faults. Data that was delayed by Blackhole arrives.
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
