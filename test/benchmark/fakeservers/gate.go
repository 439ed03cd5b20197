// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"net"
	"sync"
)

// gate stops the bytes of all connections of a worker while it is shut, below TLS and HTTP: so neither pings nor
// handshakes are answered, as if the process were stopped. The kernel goes on accepting connections.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // Closed while bytes may pass; under mu.
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) passage() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}

// gatedListener makes connections that go through a gate.
type gatedListener struct {
	net.Listener
	gate *gate
}

// Accept accepts a connection, gate or not.
func (l gatedListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: connection, gate: l.gate, closed: make(chan struct{})}, nil
}

type gatedConn struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}
}

// Read holds back what it has read while the gate is shut.
func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.pass() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write writes when the gate is open.
func (c *gatedConn) Write(p []byte) (int, error) {
	if !c.pass() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// pass returns false if the connection is closed before the gate opens.
func (c *gatedConn) pass() bool {
	select {
	case <-c.gate.passage():
		return true
	case <-c.closed:
		return false
	}
}

// Close closes the connection, gate or not.
func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
