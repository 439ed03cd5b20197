// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

// TestNothingThere checks the errors of dials. TestSilence uses a real blackhole and a real refusal.
func TestNothingThere(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	cases := map[string]struct {
		err  error
		want bool
	}{
		"Deadline":           {&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, true},
		"ContextDeadline":    {context.DeadlineExceeded, true},
		"KernelGaveUp":       {dial(syscall.ETIMEDOUT), true},
		"NoRoute":            {dial(syscall.EHOSTUNREACH), true},
		"NetworkUnreachable": {dial(syscall.ENETUNREACH), true},
		"Refused":            {dial(syscall.ECONNREFUSED), false},
		"Reset":              {dial(syscall.ECONNRESET), false},
		"Unknown":            {errors.New("what?"), false},
		"NoPorts":            {dial(syscall.EADDRNOTAVAIL), false},
		"DNSTimeout":         {&net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, nothingThere(tc.err), "nothingThere(%v)", tc.err)
		})
	}
}

// TestSilenceOfAnOutage checks that the end of a dial counts only for the outage in which the dial began.
func TestSilenceOfAnOutage(t *testing.T) {
	const address = "worker.example:6443"
	began := time.Unix(1000, 0)
	timeout := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	silent := func(s *silence) { s.dialling(address)(timeout, true) }
	cases := map[string]struct {
		reason string
		do     func(*silence)
		want   bool
	}{
		"NotTried":  {reason: "Only a dial says that nobody is there.", do: func(*silence) {}},
		"Silent":    {reason: "A dial has said so.", do: silent, want: true},
		"Connected": {reason: "Somebody takes connections.", do: func(s *silence) { silent(s); s.dialling(address)(nil, false) }},
		"Before":    {reason: "Once is enough.", do: func(s *silence) { s.dialling(address)(nil, false); silent(s) }},
		"Refused":   {reason: "Somebody refuses.", do: func(s *silence) { silent(s); s.dialling(address)(syscall.ECONNREFUSED, false) }},
		"Proxy": {
			reason: "A proxy that is not there says nothing about the worker.",
			do:     func(s *silence) { s.dialling("proxy:3128")(timeout, true) },
		},
		"OurselvesOnly": {reason: "A dial that we have ended says nothing.", do: func(s *silence) { s.dialling(address)(context.Canceled, false) }},
		"Ourselves": {
			reason: "A dial that we have ended takes nothing back.", want: true,
			do: func(s *silence) { silent(s); s.dialling(address)(context.Canceled, false) },
		},
		"LateSilence": {reason: "A dial of the outage before says nothing about this one.", do: func(s *silence) {
			late := s.dialling(address)
			s.contact()
			late(timeout, true)
		}},
		"LateSuccess": {reason: "Somebody is there now.", do: func(s *silence) {
			late := s.dialling(address)
			s.contact()
			silent(s)
			late(nil, false)
		}},
		"NewOutage": {reason: "What was heard before was another outage.", want: true, do: func(s *silence) {
			s.hear()
			s.contact()
			silent(s)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSilence("https://" + address)
			tc.do(s)
			if got := s.since(began); got.Equal(began) != tc.want || got.IsZero() == tc.want {
				t.Errorf("%s\nsilent since %s, want silence: %t", tc.reason, got, tc.want)
			}
		})
	}
}

// TestErrorsAreHeard checks that a proxy's error answer to a probe on an old connection shows that something answers.
func TestErrorsAreHeard(t *testing.T) {
	r := newRig(t)
	r.use(t, "a", open)
	r.silence.contact()
	r.silence.dialling(r.silence.address)(os.ErrDeadlineExceeded, true)
	r.handle(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	r.probe(t)
	if since := r.silence.since(time.Unix(1000, 0)); !since.IsZero() {
		t.Errorf("silent since %s although something has answered", since)
	}
}

func TestAddressOfServer(t *testing.T) {
	for server, want := range map[string]string{
		"https://a.example": "a.example:443", "https://a.example:6443/prefix": "a.example:6443", "http://[::1]": "[::1]:80", "": "", "://": "",
	} {
		check.Equal(t, want, newSilence(server).address, "address of %q", server)
	}
}

// TestDialFirst checks that the first answering address wins, and that a host is silent if all its addresses are.
func TestDialFirst(t *testing.T) {
	open, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	t.Cleanup(func() { open.Close() })
	shut, err := ports.Free()
	check.Must(t, err)
	hole := blackhole(t)
	cases := map[string]struct {
		addresses        []string
		connect, nothing bool
	}{
		"Open":          {addresses: []string{open.Addr().String()}, connect: true},
		"AfterRefusal":  {addresses: []string{shut, open.Addr().String()}, connect: true},
		"AfterSilence":  {addresses: []string{hole, open.Addr().String()}, connect: true},
		"Silent":        {addresses: []string{hole, hole}, nothing: true},
		"SilentRefused": {addresses: []string{hole, shut}},
		"RefusedSilent": {addresses: []string{shut, hole}},
		"OutOfTime":     {addresses: []string{hole, hole, hole, hole, hole, hole}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			conn, nothing, err := dialFirst(ctx, "tcp", tc.addresses)
			if (err == nil) != tc.connect || nothing != tc.nothing {
				t.Errorf("nothing there: %t, want %t; %v", nothing, tc.nothing, err)
			}
			if conn != nil {
				conn.Close()
			}
		})
	}
}

// blackhole returns an address at which connection requests get lost, because the queue of its listener is full.
func blackhole(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	raw, err := listener.(*net.TCPListener).SyscallConn()
	check.Must(t, err)
	check.Must(t, raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), 0) }))
	for {
		filler, err := net.DialTimeout("tcp", listener.Addr().String(), 200*time.Millisecond)
		if err != nil {
			return listener.Addr().String()
		}
		t.Cleanup(func() { filler.Close() })
	}
}

// TestTimeoutsHaveOneMessage: a dial ends by the deadline of its context or by that of the connection, whichever is noticed
// first. The same problem has the same message each time.
func TestTimeoutsHaveOneMessage(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		err := &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: errors.Join(&net.OpError{Op: "dial", Net: "tcp", Err: cause})}
		check.Equal(t, "the server does not answer in time", explain(err), "explanation of %v", err)
	}
}
