// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"net/http"
	"sync"
)

// gate says which requests may be sent. Probes may always be sent.
type gate int

const (
	// shut: only probes are sent. The caches' requests wait, callers are refused.
	shut gate = iota
	// held: only probes are sent. The requests of caches and callers wait for the answer of the running probe.
	held
	// cachesOnly: the caches' requests are sent, callers are refused.
	cachesOnly
	// open: all requests are sent.
	open
)

// route is the pool that requests use now, and the gate. A route never changes: another route replaces it.
type route struct {
	pool *pool
	gate gate
	// replaced is closed when another route has replaced this one.
	replaced chan struct{}
}

// exchange is the way of all requests of a worker's clients and caches. It replaces pool and gate under them. So new
// credentials and outages are only pauses to clients and caches.
type exchange struct {
	// broken is called when something has happened that needs a probe.
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

// replace puts another route in place of old. It returns nil if old is not the current route.
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

// swap puts another pool in use, with the gate shut or held. It returns the pool that was in use.
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

// lost shuts the gate after the last connection of a pool has closed, until a probe has verified the worker.
func (e *exchange) lost(l *pool) {
	e.demote(l, func(g gate) gate {
		if g == open || g == held {
			return held
		}
		return shut
	})
}

// refused shuts the gate after a 401 to a request of the pool. It returns whether the pool is in use.
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

// close shuts the gate for ever.
func (e *exchange) close() {
	for e.replace(e.route(), nil, shut) == nil {
		continue
	}
}

// rewind gives a request its body again after a RoundTrip that failed before it sent the request.
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
