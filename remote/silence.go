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

// silence finds out whether anything at all is at a worker's address while the worker does not answer. If something is (a machine that
// refuses, a load balancer without a backend, a process that hangs), the worker's API server may be down while all that it has started
// runs on. If no connection can be made, it is rather the way there that is cut.
//
// An outage begins with the last probe that was answered. That a connection of before is silent says nothing, so it is cut: whether packets
// arrive is known when the next connection is made. That it was ended from the other side says that somebody was there.
type silence struct {
	// address is what is to be dialled, host and port. What dials another one goes through a proxy, and knows the proxy only.
	address string

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		// outage counts the probes that were answered.
		outage int
		// heard is true if something has answered since the last of them, unheard if a connection could not be made for want of any answer.
		heard, unheard bool
	}
}

// newSilence takes the URL of the server. Of what is no URL nothing is ever silent.
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

// contact ends the outage: a probe has been answered.
func (s *silence) contact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked.outage++
	s.locked.heard, s.locked.unheard = false, false
}

// hear takes in that something answers.
func (s *silence) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked.heard = true
}

// since is from when on nothing has answered, of an outage that began then; zero if something has, or if that is not known yet.
func (s *silence) since(began time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked.heard || !s.locked.unheard {
		return time.Time{}
	}
	return began
}

// untried is true while it is not known whether anything answers: no connection has been made, or tried for long enough, since contact was
// lost.
func (s *silence) untried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.locked.heard && !s.locked.unheard
}

// dialling is called before a dial. What it returns is told how that has ended, and whether it is known that nothing was there.
func (s *silence) dialling(address string) func(err error, nothing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outage := s.locked.outage
	return func(err error, nothing bool) {
		if errors.Is(err, context.Canceled) {
			return // It was we who have ended it.
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err == nil || !nothing || address != s.address:
			s.locked.heard = true
		case s.locked.outage == outage: // A dial may take longer than its outage.
			s.locked.unheard = true
		}
	}
}

// nothingThere says whether a failed dial of one IP address means that nobody has said anything.
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
