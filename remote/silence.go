// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"
)

// silence finds out whether anything answers at a worker's address while the worker does not answer. If something
// answers (a machine that refuses, a load balancer without a backend, a process that hangs), the worker's API server
// may be down while its pods run on. If no connection can be made, the network is probably cut.
//
// An outage begins with the last probe that was answered. Silence on an old connection proves nothing, so the loop cuts
// it: the next dial shows whether packets arrive. If the other side closes a connection, something is there.
type silence struct {
	// address is the worker's host and port. A dial of another address reaches a proxy: that says nothing of the worker.
	address string

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		// outage counts the probes that were answered.
		outage int
		// heard is true if something has answered since the last one. unheard is true if a dial got no answer.
		heard, unheard bool
	}
}

// newSilence takes the URL of the server. Without a valid URL the worker is never silent.
func newSilence(server string) *silence {
	address, err := url.Parse(server)
	if err != nil || address.Hostname() == "" {
		return &silence{}
	}
	port := address.Port()
	switch {
	case port != "":
	case address.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return &silence{address: net.JoinHostPort(address.Hostname(), port)}
}

// contact ends the outage, because the worker has answered a probe.
func (s *silence) contact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked.outage++
	s.locked.heard, s.locked.unheard = false, false
}

func (s *silence) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked.heard = true
}

// since returns when the outage began if nothing has answered since then. It returns zero if something has answered, or
// if that is not known.
func (s *silence) since(began time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked.heard || !s.locked.unheard {
		return time.Time{}
	}
	return began
}

// untried is true until a dial since contact was lost has shown whether anything answers.
func (s *silence) untried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.locked.heard && !s.locked.unheard
}

// dialling is called before a dial. The returned function gets the dial's error, and whether nothing answered.
func (s *silence) dialling(address string) func(err error, nothing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outage := s.locked.outage
	return func(err error, nothing bool) {
		if errors.Is(err, context.Canceled) {
			// This process has ended the dial.
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err == nil || !nothing || address != s.address:
			s.locked.heard = true
		// A dial may last longer than the outage in which it began.
		case s.locked.outage == outage:
			s.locked.unheard = true
		}
	}
}

// nothingThere says whether a failed dial of one IP address means that nothing has answered.
func nothingThere(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ETIMEDOUT} {
		if errors.Is(err, errno) {
			return true
		}
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || isTimeout(err)
}
