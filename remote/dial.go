// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net"
	"time"
)

// dialStagger is how long the dial of a host's next address waits for the dial of the address before.
const dialStagger = 300 * time.Millisecond

// errUntried is the error for an address for which no time was left.
var errUntried = errors.New("not tried in time")

type dialer struct {
	// timeout bounds a dial, DNS included. It is shorter than the timeout of a probe and of its request, so that the dial
	// ends first and its result is known. If the request ends first, nobody knows whether anything is at the address.
	timeout time.Duration
	silence *silence
}

// dial connects to a host as net.Dialer does, and tells silence whether anything has answered. For that it needs the
// errors of all addresses of the host. net.Dialer returns only the first error.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	ended := d.silence.dialling(address)
	addresses, err := lookUp(ctx, network, address)
	if err != nil {
		ended(err, false)
		return nil, err
	}
	conn, nothing, err := dialFirst(ctx, network, addresses)
	ended(err, nothing)
	return conn, err
}

// lookUp returns the IP addresses of a host, each with the port.
func lookUp(ctx context.Context, network, address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	addresses := make([]string, 0, len(found))
	for _, ip := range found {
		addresses = append(addresses, net.JoinHostPort(ip.String(), port))
	}
	return addresses, nil
}

type dialed struct {
	conn net.Conn
	err  error
}

// dialFirst returns the first connection to one of the addresses. It dials the next address when a dial fails or takes
// longer than dialStagger. nothing says that nothing has answered at any address.
func dialFirst(ctx context.Context, network string, addresses []string) (conn net.Conn, nothing bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	plain := net.Dialer{KeepAlive: 30 * time.Second}
	ends := make(chan dialed, len(addresses))
	running, nothing := 0, true
	var errs []error
	for len(addresses) > 0 || running > 0 {
		if len(addresses) > 0 {
			address := addresses[0]
			addresses, running = addresses[1:], running+1
			go func() {
				conn, err := plain.DialContext(ctx, network, address)
				ends <- dialed{conn, err}
			}()
		}
		var next <-chan time.Time
		if len(addresses) > 0 {
			next = time.After(dialStagger)
		}
		select {
		case end := <-ends:
			running--
			if end.err == nil {
				go closeAll(ends, running)
				return end.conn, false, nil
			}
			nothing = nothing && nothingThere(end.err)
			errs = append(errs, end.err)
			if len(addresses) > 0 && isTimeout(end.err) { // All addresses share one timeout.
				nothing, addresses = false, nil
				errs = append(errs, errUntried)
			}
		case <-next:
		}
	}
	return nil, nothing, errors.Join(errs...)
}

// closeAll closes the connections that other dials made too late.
func closeAll(ends <-chan dialed, running int) {
	for range running {
		if late := <-ends; late.err == nil {
			_ = late.conn.Close()
		}
	}
}
