// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"net/http"
	"sync"
)

// gate says which requests may go. Probes always may.
type gate int

const (
	// shut: nothing but probes. The caches' requests wait.
	shut gate = iota
	// held: as shut, but callers wait as well, for the answer of a probe that is under way.
	held
	// cachesOnly: the caches' requests go, callers are refused.
	cachesOnly
	// open: everything goes.
	open
)

// route is the pool that requests use at the moment, and the gate. A route is never changed, but replaced.
type route struct {
	pool *pool
	gate gate
	// replaced is closed when another route has replaced this one.
	replaced chan struct{}
}

// exchange is what all clients and caches of a worker send through. Line and gate are replaced under them, so that neither other
// credentials nor an outage are anything to them but a pause.
type exchange struct {
	// broken is called when something happened that a probe should look into.
	broken func()

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		route *route
	}
}

func newExchange(broken func()) *exchange {
	e := &exchange{broken: broken}
	e.locked.route = &route{replaced: make(chan struct{})}
	return e
}

func (e *exchange) route() *route {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.locked.route
}

// replace puts another route in place of old, and returns nil if old is not the route any more.
func (e *exchange) replace(old *route, l *pool, g gate) *route {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locked.route != old {
		return nil
	}
	if old.pool == l && old.gate == g {
		return old
	}
	e.locked.route = &route{pool: l, gate: g, replaced: make(chan struct{})}
	close(old.replaced)
	return e.locked.route
}

// swap puts another pool in use, shut, and returns the pool that was in use.
func (e *exchange) swap(l *pool) (before *pool) {
	for {
		old := e.route()
		g := shut
		if old.gate == open || old.gate == held {
			g = held
		}
		if e.replace(old, l, g) != nil {
			return old.pool
		}
	}
}

// lost shuts the gate after a pool's last connection has gone, until a probe has seen who answers.
func (e *exchange) lost(l *pool) {
	e.demote(l, func(g gate) gate {
		if g == open || g == held {
			return held
		}
		return shut
	})
}

// refused shuts the gate after a 401 to a request of the pool. It says whether the pool is in use.
func (e *exchange) refused(l *pool) bool {
	return e.demote(l, func(gate) gate { return shut })
}

func (e *exchange) demote(l *pool, to func(gate) gate) (inUse bool) {
	for {
		old := e.route()
		if old.pool != l {
			return false
		}
		next := to(old.gate)
		if next == old.gate {
			return true
		}
		if e.replace(old, l, next) != nil {
			e.broken()
			return true
		}
	}
}

// close lets nothing through any more.
func (e *exchange) close() {
	for e.replace(e.route(), nil, shut) == nil {
		continue
	}
}

// rewind gives a request its body back after a RoundTrip that failed before sending it.
func rewind(req *http.Request) (*http.Request, bool) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, false
	}
	again := req.Clone(req.Context())
	again.Body = body
	return again, true
}
