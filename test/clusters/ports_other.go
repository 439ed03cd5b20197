// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clusters

import (
	"fmt"
	"net"
)

// port is a TCP port that was free when it was picked.
type port struct {
	number int
}

// reservePort picks a free port of an IPv4 address of this machine. Outside Linux it cannot be kept, so another
// process may take it before its server does; the server then fails to start
// and its log says so.
func reservePort(host string) (*port, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	return &port{number: l.Addr().(*net.TCPAddr).Port}, l.Close()
}

func (p *port) release() error {
	return nil
}
