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
	// held: as shut, but callers wait as well, for the answer of a probe that is on its way.
	held
	// cachesOnly: the caches' requests go, callers are refused.
	cachesOnly
	// open: everything goes.
	open
)

// way is how requests go at the moment. A way is never changed, but replaced.
type way struct {
	line *line
	gate gate
	// replaced is closed when there is another way.
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
		way *way
	}
}

func newExchange(broken func()) *exchange {
	e := &exchange{broken: broken}
	e.locked.way = &way{replaced: make(chan struct{})}
	return e
}

func (e *exchange) way() *way {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.locked.way
}

// replace puts another way in place of old, and returns nil if old is not the way any more.
func (e *exchange) replace(old *way, l *line, g gate) *way {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locked.way != old {
		return nil
	}
	if old.line == l && old.gate == g {
		return old
	}
	e.locked.way = &way{line: l, gate: g, replaced: make(chan struct{})}
	close(old.replaced)
	return e.locked.way
}

// swap puts another line in use, shut, and returns the line that was in use.
func (e *exchange) swap(l *line) (before *line) {
	for {
		old := e.way()
		g := shut
		if old.gate == open || old.gate == held {
			g = held
		}
		if e.replace(old, l, g) != nil {
			return old.line
		}
	}
}

// lost shuts the gate after a line's last connection has gone, until a probe has seen who answers.
func (e *exchange) lost(l *line) {
	e.demote(l, func(g gate) gate {
		if g == open || g == held {
			return held
		}
		return shut
	})
}

// refused shuts the gate after a 401 to a request on the line. It says whether the line is in use.
func (e *exchange) refused(l *line) bool {
	return e.demote(l, func(gate) gate { return shut })
}

func (e *exchange) demote(l *line, to func(gate) gate) (inUse bool) {
	for {
		old := e.way()
		if old.line != l {
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
	for e.replace(e.way(), nil, shut) == nil {
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
