// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"
)

// This is the election of the managers, as client-go holds it with what cmd/internal/process sets: a lease on the hub.
// Its holder renews it, and another process takes it when it has seen it unchanged for leaseDuration. Each process uses
// its own clock. A renewal has no steps of its own: a lost renewal is like a renewal that was not tried.

// The durations are the defaults of the manager.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	// waking is how long a process may run after a pause until its first due timer fires.
	waking = time.Second
)

// lease is the lease of the managers. Like the rest of the hub, it does not depend on any process.
type lease struct {
	// holder is the term of the manager that has it, 0 if it was released. version counts writes, and terms counts the
	// managers that ever held it.
	holder, version, terms int
}

// candidate is a manager's part in the election.
type candidate struct {
	// waiting: the process waits for the lease. Its caches will be as many changes behind.
	waiting bool
	behind  int
	// term is the term in which it leads or has led.
	term int
	// until is until when nobody else can lead, by its own clock.
	until time.Time
	// tryAt is when it looks at the lease next. giveUpAt is when it stops trying to renew, 0 while the last try was
	// successful.
	tryAt, giveUpAt time.Duration
	// seen is the version of the lease that it saw last, and seenAt when first.
	seen   int
	seenAt time.Time
}

// certain says whether the manager leads, and nobody else can. It corresponds to Options.Leads of cmd/internal/process.
func (m *Manager) certain() bool { return m.alive && m.clock.Now().Before(m.until) }

// stand has the process of a manager wait for the lease.
func (m *Manager) stand(behind int) bool {
	if m.alive || m.waiting || m.cutOff {
		return false
	}
	m.candidate = candidate{waiting: true, behind: behind, tryAt: m.world.now, seen: -1}
	m.pausedUntil = 0
	return true
}

// lead has a manager take the lease, and begin.
func (m *Manager) lead(behind int) {
	w := m.world
	for _, other := range w.managers {
		if other.alive {
			w.Seen["TwoLead"]++
		}
	}
	w.lease.terms++
	w.lease.version++
	w.lease.holder = w.lease.terms
	m.candidate = candidate{term: w.lease.terms, until: m.clock.Now().Add(renewDeadline), tryAt: m.clock.due(retryPeriod)}
	m.start(behind)
	m.catchUp()
}

// leave ends the process of a manager. A process that ends in an orderly way releases the lease.
func (m *Manager) leave(inOrder bool) {
	lease := &m.world.lease
	if inOrder && m.alive && lease.holder == m.term && m.reaches(m.world.Hub) {
		lease.holder = 0
		lease.version++
	}
	m.waiting = false
	m.die()
}

// electAt is when a manager next has something to do for the lease.
func (m *Manager) electAt() time.Duration {
	switch {
	case !m.alive && !m.waiting:
		return never
	case m.alive && m.giveUpAt != 0:
		if m.pausedUntil > m.giveUpAt || m.world.now >= m.giveUpAt {
			return max(m.giveUpAt, m.pausedUntil+waking)
		}
		return max(min(m.tryAt, m.giveUpAt), m.pausedUntil)
	default:
		return max(m.tryAt, m.pausedUntil)
	}
}

// elect does what is due. It is true if the manager has begun to lead, or has ended.
func (m *Manager) elect() bool {
	if m.waiting {
		return m.compete()
	}
	w := m.world
	if m.giveUpAt != 0 && m.giveUpAt <= w.now {
		m.leave(true)
		return true
	}
	if m.giveUpAt == 0 {
		m.giveUpAt = m.clock.due(renewDeadline)
	}
	m.tryAt = m.clock.due(retryPeriod)
	if m.reaches(w.Hub) && w.lease.holder == m.term {
		w.lease.version++
		m.until, m.giveUpAt = m.clock.Now().Add(renewDeadline), 0
	}
	return false
}

// compete looks at the lease, and takes it if nobody renews it.
func (m *Manager) compete() bool {
	w, now := m.world, m.clock.Now()
	m.tryAt = m.clock.due(retryPeriod)
	if !m.reaches(w.Hub) {
		return false
	}
	if w.lease.version != m.seen {
		m.seen, m.seenAt = w.lease.version, now
	}
	if w.lease.holder != 0 && !now.After(m.seenAt.Add(leaseDuration)) {
		return false
	}
	m.lead(m.behind)
	return true
}

// elect lets time pass until there is nothing to do for the lease before a time, or a manager has begun to lead, or has
// ended.
func (w *World) elect(until time.Duration) (changed bool) {
	for {
		var first *Manager
		at := never
		for _, m := range w.managers {
			if due := m.electAt(); due < at {
				first, at = m, due
			}
		}
		if first == nil || at > until {
			return false
		}
		w.now = max(w.now, at)
		if first.elect() {
			return true
		}
	}
}

// leaderless is true if no process of a manager leads or will lead.
func (w *World) leaderless() bool {
	for _, m := range w.managers {
		if m.alive || m.waiting {
			return false
		}
	}
	return true
}
