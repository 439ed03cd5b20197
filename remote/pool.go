// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// errUnverified is the error of a dial before a probe has verified the worker: see pool.dial.
var errUnverified = errors.New("the worker's identity is being verified")

// pool is one set of credentials in use, with its own http.Transport and connections. It does not use client-go's cache
// of transports. So no two workers share connections, and the pool can be closed.
type pool struct {
	transport http.RoundTripper
	base      *http.Transport
	dialer    *dialer
	// lost is called when the last connection has closed.
	lost func(*pool)

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		connections map[*connection]bool
	}
}

// newPool does no I/O. Its error is about the credentials.
func newPool(config *rest.Config, dialer *dialer, lost func(*pool)) (*pool, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("use the TLS data of the credentials: %w", err)
	}
	l := &pool{lost: lost, dialer: dialer}
	l.locked.connections = map[*connection]bool{}
	// The defaults include HTTP/2 pings. They end a watch whose other end has disappeared.
	l.base = utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:     tlsConfig,
		DialContext:         l.dial,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		DisableCompression:  config.DisableCompression,
	})
	l.transport, err = transport.HTTPWrappersForConfig(&transport.Config{
		UserAgent:   rest.DefaultKubernetesUserAgent(),
		BearerToken: config.BearerToken,
	}, l.base)
	return l, err
}

// probing marks the context of a probe's requests.
type probing struct{}

// dial makes connections. Without an open connection only a probe may dial: after the last connection has closed,
// another cluster may have taken the address. So nothing else is sent there before the probe has seen the cluster ID.
func (l *pool) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if ctx.Value(probing{}) == nil && l.count() == 0 {
		l.lost(l)
		return nil, errUnverified
	}
	raw, err := l.dialer.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, pool: l}
	l.mu.Lock()
	l.locked.connections[c] = true
	l.mu.Unlock()
	return c, nil
}

func (l *pool) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.locked.connections)
}

// retire closes idle connections. Running requests, such as watches, continue until they end.
func (l *pool) retire() { l.base.CloseIdleConnections() }

func (l *pool) cut() {
	l.mu.Lock()
	connections := make([]*connection, 0, len(l.locked.connections))
	for c := range l.locked.connections {
		connections = append(connections, c)
	}
	l.mu.Unlock()
	for _, c := range connections {
		// The error of a close does not matter.
		_ = c.cut()
	}
	l.base.CloseIdleConnections()
}

func (l *pool) remove(c *connection) {
	l.mu.Lock()
	_, known := l.locked.connections[c]
	delete(l.locked.connections, c)
	last := known && len(l.locked.connections) == 0
	l.mu.Unlock()
	if last {
		l.lost(l)
	}
}

// connection is a net.Conn that tells its pool when it closes.
type connection struct {
	net.Conn
	pool *pool
	// reading counts the reads that wait. heard is true when a read has returned data, timedOut when a read has ended
	// because nothing came back, and closed when this process has closed the connection.
	reading                 atomic.Int32
	heard, timedOut, closed atomic.Bool
}

// Read reads from the connection.
func (c *connection) Read(p []byte) (int, error) {
	c.reading.Add(1)
	n, err := c.Conn.Read(p)
	c.reading.Add(-1)
	if n > 0 {
		c.heard.Store(true)
	}
	if err != nil && nothingThere(err) {
		c.timedOut.Store(true)
	}
	return n, err
}

// Close closes the connection. If no read waits then, a read has seen that the other side ended the connection: so
// something answers. A connection that never received data has no reader yet, so it does not count.
func (c *connection) Close() error {
	if c.heard.Load() && c.reading.Load() == 0 && !c.timedOut.Load() && !c.closed.Load() {
		c.pool.dialer.silence.hear()
	}
	return c.cut()
}

// cut closes the connection because this process wants to.
func (c *connection) cut() error {
	c.closed.Store(true)
	err := c.Conn.Close()
	c.pool.remove(c)
	return err
}
